WITH before AS MATERIALIZED (
  SELECT jobqueue_job.id AS id, jobqueue_job.queue AS queue, jobqueue_job.task AS task, jobqueue_job.args AS
      args, jobqueue_job.headers AS headers, jobqueue_job.status AS status, jobqueue_job.priority AS priority,
      jobqueue_job.attempt AS attempt, jobqueue_job.max_attempts AS max_attempts, jobqueue_job.token AS token,
      jobqueue_job.visible_at AS visible_at, jobqueue_job.enqueued_at AS enqueued_at, jobqueue_job.claimed_at
      AS claimed_at, jobqueue_job.claimed_by AS claimed_by, jobqueue_job.dedup_key AS dedup_key,
      jobqueue_job.unique_key AS unique_key, jobqueue_job.errors AS errors, :since::TIMESTAMP WITH TIME ZONE
      AS since
  FROM jobqueue_job
  WHERE jobqueue_job.id = :for_id::BIGINT AND jobqueue_job.token = :for_token::BIGINT AND
      jobqueue_job.claimed_at IS NOT NULL
  FOR NO KEY UPDATE OF jobqueue_job
), changed AS (
  UPDATE jobqueue_job
  SET status='queued', attempt=greatest (jobqueue_job.attempt - :attempt_1::INTEGER, :greatest_1::INTEGER),
      visible_at=coalesce (before.since, before.claimed_at), claimed_at=NULL, claimed_by=NULL
  FROM before
  WHERE jobqueue_job.id = before.id
  RETURNING jobqueue_job.id, jobqueue_job.visible_at
)
SELECT changed.id, changed.visible_at
FROM changed

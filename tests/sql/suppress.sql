WITH before AS MATERIALIZED (
  SELECT jobqueue_job.id AS id, jobqueue_job.queue AS queue, jobqueue_job.task AS task, jobqueue_job.args AS
      args, jobqueue_job.headers AS headers, jobqueue_job.status AS status, jobqueue_job.priority AS priority,
      jobqueue_job.attempt AS attempt, jobqueue_job.max_attempts AS max_attempts, jobqueue_job.token AS token,
      jobqueue_job.visible_at AS visible_at, jobqueue_job.enqueued_at AS enqueued_at, jobqueue_job.claimed_at
      AS claimed_at, jobqueue_job.claimed_by AS claimed_by, jobqueue_job.dedup_key AS dedup_key,
      jobqueue_job.unique_key AS unique_key, jobqueue_job.errors AS errors, EXISTS(
    SELECT *
    FROM jobqueue_dedup_key
    WHERE jobqueue_dedup_key.scope = jobqueue_job.task AND jobqueue_dedup_key.key =
        coalesce(jobqueue_job.dedup_key, 'job#' || CAST(jobqueue_job.id AS TEXT))
  ) AS exists
  FROM jobqueue_job
  WHERE jobqueue_job.id = :for_id::BIGINT AND jobqueue_job.token = :for_token::BIGINT AND
      jobqueue_job.claimed_at IS NOT NULL
  FOR NO KEY UPDATE OF jobqueue_job
), gone AS (
  DELETE FROM jobqueue_job USING before
  WHERE jobqueue_job.id = before.id AND before.exists
  RETURNING jobqueue_job.id, jobqueue_job.queue, jobqueue_job.task, jobqueue_job.args, jobqueue_job.headers,
      jobqueue_job.status, jobqueue_job.priority, jobqueue_job.attempt, jobqueue_job.max_attempts,
      jobqueue_job.token, jobqueue_job.visible_at, jobqueue_job.enqueued_at, jobqueue_job.claimed_at,
      jobqueue_job.claimed_by, jobqueue_job.dedup_key, jobqueue_job.unique_key, jobqueue_job.errors
)
SELECT before.id, before.exists
FROM before

WITH gone AS (
  DELETE FROM jobqueue_job
  WHERE jobqueue_job.id = :for_id::BIGINT AND jobqueue_job.token = :for_token::BIGINT AND
      jobqueue_job.claimed_at IS NOT NULL
  RETURNING jobqueue_job.id, jobqueue_job.task, jobqueue_job.dedup_key, jobqueue_job.queue,
      jobqueue_job.attempt, jobqueue_job.enqueued_at, jobqueue_job.claimed_at, jobqueue_job.claimed_by
), logged AS (
  INSERT INTO jobqueue_job_log(job_id, worker, outcome, finished_at, queue, task, attempt, enqueued_at,
      claimed_at)
  SELECT gone.id AS id, gone.claimed_by AS claimed_by, 'done', statement_timestamp() AS statement_timestamp_1,
      gone.queue AS queue, gone.task AS task, gone.attempt AS attempt, gone.enqueued_at AS enqueued_at,
      gone.claimed_at AS claimed_at
  FROM gone
), written AS (
  INSERT INTO jobqueue_dedup_key(scope, key, job_id)
  SELECT gone.task AS task, coalesce(gone.dedup_key, 'job#' || CAST(gone.id AS TEXT)) AS coalesce_1, gone.id
      AS id
  FROM gone
  WHERE gone.dedup_key IS NOT NULL
  ON CONFLICT DO NOTHING
  RETURNING jobqueue_dedup_key.job_id
)
SELECT CAST(CASE WHEN (EXISTS(
  SELECT written.job_id
  FROM written
)) THEN '0' WHEN (
  (
    SELECT gone.id
    FROM gone
  ) = (
    SELECT jobqueue_dedup_key.job_id
    FROM jobqueue_dedup_key, gone
    WHERE jobqueue_dedup_key.scope = gone.task AND jobqueue_dedup_key.key = coalesce(gone.dedup_key, 'job#' ||
        CAST(gone.id AS TEXT))
  )
) THEN '0' WHEN (EXISTS(
  SELECT *
  FROM gone
  WHERE gone.dedup_key IS NULL
)) THEN '0' WHEN (NOT (EXISTS(
  SELECT gone.id
  FROM gone
))) THEN 'sa_jobqueue: lease lost' ELSE 'sa_jobqueue: duplicate effect' END AS INTEGER) AS refused

WITH gone AS (
  DELETE FROM jobqueue_job
  WHERE jobqueue_job.id = :for_id::BIGINT AND jobqueue_job.token = :for_token::BIGINT AND
      jobqueue_job.claimed_at IS NOT NULL
  RETURNING jobqueue_job.id, jobqueue_job.task, jobqueue_job.dedup_key
), written AS (
  INSERT INTO jobqueue_dedup_key(scope, key, job_id)
  SELECT gone.task AS task, coalesce(gone.dedup_key, 'job#' || CAST(gone.id AS TEXT)) AS coalesce_1, gone.id
      AS id
  FROM gone
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
) THEN '0' WHEN (NOT (EXISTS(
  SELECT gone.id
  FROM gone
))) THEN 'sa_jobqueue: lease lost' ELSE 'sa_jobqueue: duplicate effect' END AS INTEGER) AS refused

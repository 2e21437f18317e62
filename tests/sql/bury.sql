WITH gone AS (
  DELETE FROM jobqueue_job
  WHERE jobqueue_job.id = :for_id::BIGINT AND jobqueue_job.token = :for_token::BIGINT AND
      jobqueue_job.claimed_at IS NOT NULL
  RETURNING jobqueue_job.id, jobqueue_job.queue, jobqueue_job.task, jobqueue_job.args, jobqueue_job.headers,
      jobqueue_job.status, jobqueue_job.priority, jobqueue_job.attempt, jobqueue_job.max_attempts,
      jobqueue_job.token, jobqueue_job.visible_at, jobqueue_job.enqueued_at, jobqueue_job.claimed_at,
      jobqueue_job.claimed_by, jobqueue_job.dedup_key, jobqueue_job.unique_key, jobqueue_job.errors
), graves AS (
  INSERT INTO jobqueue_dead_letter(job_id, queue, task, args, headers, priority, attempt, max_attempts, token,
      enqueued_at, dedup_key, unique_key, errors, reason, died_at)
  SELECT gone.id AS id, gone.queue AS queue, gone.task AS task, gone.args AS args, gone.headers AS headers,
      gone.priority AS priority, gone.attempt AS attempt, gone.max_attempts AS max_attempts, gone.token AS
      token, gone.enqueued_at AS enqueued_at, gone.dedup_key AS dedup_key, gone.unique_key AS unique_key, CASE
      WHEN (jsonb_array_length(gone.errors) >= :jsonb_array_length_1::INTEGER) THEN gone.errors - 0 ELSE
      gone.errors END || jsonb_build_array(jsonb_build_object('attempt', gone.attempt, 'at',
      statement_timestamp(), 'error', :error::VARCHAR, 'worker', gone.claimed_by)) AS anon_1, 'failed',
      statement_timestamp() AS statement_timestamp_1
  FROM gone
  RETURNING jobqueue_dead_letter.job_id
)
SELECT gone.id
FROM gone

WITH gone AS (
  DELETE FROM jobqueue_job
  WHERE jobqueue_job.id = :for_id::BIGINT
  RETURNING jobqueue_job.id, jobqueue_job.queue, jobqueue_job.task, jobqueue_job.args, jobqueue_job.headers,
      jobqueue_job.status, jobqueue_job.priority, jobqueue_job.attempt, jobqueue_job.max_attempts,
      jobqueue_job.token, jobqueue_job.visible_at, jobqueue_job.enqueued_at, jobqueue_job.claimed_at,
      jobqueue_job.claimed_by, jobqueue_job.dedup_key, jobqueue_job.unique_key, jobqueue_job.errors
)
SELECT gone.id
FROM gone

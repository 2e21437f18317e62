SELECT jobqueue_job.id, jobqueue_job.status, jobqueue_job.unique_key
FROM jobqueue_job
WHERE jobqueue_job.unique_key = any(:keys::TEXT[])

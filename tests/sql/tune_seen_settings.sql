SELECT jobqueue_job.task, min(CAST(EXTRACT(epoch FROM jobqueue_job.visible_at - jobqueue_job.claimed_at) AS
    DOUBLE PRECISION)) FILTER (WHERE jobqueue_job.status = 'claimed' AND 3 * CAST(EXTRACT(epoch FROM
    statement_timestamp() - jobqueue_job.claimed_at) AS DOUBLE PRECISION) < CAST(EXTRACT(epoch FROM
    jobqueue_job.visible_at - jobqueue_job.claimed_at) AS DOUBLE PRECISION)) AS visibility_timeout,
    max(jobqueue_job.max_attempts) AS max_attempts
FROM jobqueue_job
GROUP BY jobqueue_job.task

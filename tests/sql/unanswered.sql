SELECT jobqueue_job.id, jobqueue_job.token, jobqueue_job.claimed_at
FROM jobqueue_job
WHERE jobqueue_job.queue = :for_queue::VARCHAR AND jobqueue_job.status IN ('scheduled', 'claimed') AND
    jobqueue_job.status = 'claimed' AND jobqueue_job.claimed_by = :worker::VARCHAR AND jobqueue_job.id !=
    all(:ids::BIGINT[])

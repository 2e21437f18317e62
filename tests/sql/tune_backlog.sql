SELECT jobqueue_job.queue, count(*) AS ready, greatest(CAST(EXTRACT(epoch FROM statement_timestamp() -
    min(jobqueue_job.visible_at)) AS DOUBLE PRECISION), 0) AS oldest, count(*) FILTER (WHERE
    jobqueue_job.enqueued_at >= statement_timestamp() - :window) AS fresh
FROM jobqueue_job
WHERE jobqueue_job.status = 'queued' OR jobqueue_job.visible_at <= statement_timestamp()
GROUP BY jobqueue_job.queue

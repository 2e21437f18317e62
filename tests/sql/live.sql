SELECT jobqueue_job.queue, count(*) FILTER (WHERE jobqueue_job.status = 'queued') AS queued, count(*) FILTER
    (WHERE jobqueue_job.status = 'scheduled') AS scheduled, count(*) FILTER (WHERE jobqueue_job.status =
    'claimed') AS claimed, CAST(coalesce(greatest(EXTRACT(epoch FROM statement_timestamp() -
    (min(jobqueue_job.visible_at) FILTER (WHERE jobqueue_job.status = 'queued' OR jobqueue_job.visible_at <=
    statement_timestamp()))), :greatest_1::INTEGER), :coalesce_1::INTEGER) AS DOUBLE PRECISION) AS lag_seconds
FROM jobqueue_job
GROUP BY jobqueue_job.queue

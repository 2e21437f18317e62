SELECT jobqueue_rollup.queue, jobqueue_rollup.task, jobqueue_rollup.metric, jobqueue_rollup.bucket,
    CAST(sum(jobqueue_rollup.count) AS BIGINT) AS count
FROM jobqueue_rollup
WHERE jobqueue_rollup.minute >= date_trunc(:date_trunc_1::VARCHAR, statement_timestamp() - :window)
GROUP BY jobqueue_rollup.queue, jobqueue_rollup.task, jobqueue_rollup.metric, jobqueue_rollup.bucket

SELECT jobqueue_dead_letter.task, count(*) FILTER (WHERE jobqueue_dead_letter.reason = 'failed') AS failed,
    CAST(coalesce(sum(jobqueue_dead_letter.attempt - 1) FILTER (WHERE jobqueue_dead_letter.reason = 'failed'),
    0) AS BIGINT) AS retries, count(*) FILTER (WHERE jobqueue_dead_letter.reason = 'lease_expired') AS expired
FROM jobqueue_dead_letter
WHERE jobqueue_dead_letter.died_at >= statement_timestamp() - :window
GROUP BY jobqueue_dead_letter.task

SELECT jobqueue_dead_letter.queue, count(*) AS dead
FROM jobqueue_dead_letter
WHERE jobqueue_dead_letter.redriven_at IS NULL
GROUP BY jobqueue_dead_letter.queue

INSERT INTO jobqueue_job(queue, task, args, headers, priority, max_attempts, dedup_key, unique_key, status,
    visible_at)
SELECT given.queue, given.task, CAST(given.args AS JSONB) AS args, CAST(given.headers AS JSONB) AS headers,
    given.priority, given.max_attempts, given.dedup_key, given.unique_key, CASE WHEN
    (coalesce(CAST(given.run_at AS TIMESTAMP WITH TIME ZONE), statement_timestamp() + (interval '1 second' *
    CAST(given.delay AS DOUBLE PRECISION))) IS NULL) THEN 'queued' ELSE 'scheduled' END AS anon_1,
    coalesce(coalesce(CAST(given.run_at AS TIMESTAMP WITH TIME ZONE), statement_timestamp() + (interval '1
    second' * CAST(given.delay AS DOUBLE PRECISION))), statement_timestamp()) AS coalesce_1
FROM unnest(:queue::TEXT[], :task::TEXT[], :args::TEXT[], :headers::TEXT[], :priority::INTEGER[],
    :max_attempts::INTEGER[], :delay::DOUBLE PRECISION[], :run_at::TIMESTAMP WITH TIME ZONE[],
    :dedup_key::TEXT[], :unique_key::TEXT[]) WITH ORDINALITY AS given(queue, task, args, headers, priority,
    max_attempts, delay, run_at, dedup_key, unique_key, ordinality)
ORDER BY given.unique_key
ON CONFLICT (unique_key)
WHERE unique_key IS NOT NULL DO NOTHING
RETURNING CAST(jobqueue_job.id AS BIGINT) AS id, jobqueue_job.status, jobqueue_job.unique_key

INSERT INTO jobqueue_job(queue, task, args, headers, status, priority, max_attempts, visible_at, dedup_key,
    unique_key)
VALUES (:queue::VARCHAR, :task::VARCHAR, CAST(:args::VARCHAR AS JSONB), CAST(:headers::VARCHAR AS JSONB), CASE
    WHEN (coalesce(CAST(:run_at::TIMESTAMP WITH TIME ZONE AS TIMESTAMP WITH TIME ZONE), statement_timestamp()
    + (interval '1 second' * CAST(:delay AS DOUBLE PRECISION))) IS NULL) THEN 'queued' ELSE 'scheduled' END,
    :priority::INTEGER, :max_attempts::INTEGER, coalesce(coalesce(CAST(:run_at::TIMESTAMP WITH TIME ZONE AS
    TIMESTAMP WITH TIME ZONE), statement_timestamp() + (interval '1 second' * CAST(:delay AS DOUBLE
    PRECISION))), statement_timestamp()), :dedup_key::VARCHAR, :unique_key::VARCHAR)
RETURNING CAST(jobqueue_job.id AS BIGINT) AS id, jobqueue_job.status, jobqueue_job.unique_key

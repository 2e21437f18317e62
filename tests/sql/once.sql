INSERT INTO jobqueue_dedup_key(scope, key, job_id)
VALUES (:scope::VARCHAR, :key::VARCHAR, :job_id::BIGINT)
ON CONFLICT DO NOTHING
RETURNING jobqueue_dedup_key.key

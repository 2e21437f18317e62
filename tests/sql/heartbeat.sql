WITH reached AS MATERIALIZED (
  SELECT jobqueue_job.id AS id, beat.lease AS lease
  FROM unnest(:ids::BIGINT[], :tokens::BIGINT[], :leases::DOUBLE PRECISION[]) AS beat(id, token, lease)
  JOIN jobqueue_job ON jobqueue_job.id = beat.id AND jobqueue_job.token = beat.token AND
      jobqueue_job.claimed_at IS NOT NULL
  FOR NO KEY UPDATE OF jobqueue_job SKIP LOCKED
), extended AS (
  UPDATE jobqueue_job
  SET visible_at= (statement_timestamp() + (interval '1 second' * reached.lease))
  FROM reached
  WHERE jobqueue_job.id = reached.id
)
SELECT beat.id, beat.token
FROM unnest(:ids::BIGINT[], :tokens::BIGINT[], :leases::DOUBLE PRECISION[]) AS beat(id, token, lease)
LEFT OUTER JOIN jobqueue_job ON jobqueue_job.id = beat.id AND jobqueue_job.token = beat.token AND
    jobqueue_job.claimed_at IS NOT NULL
WHERE jobqueue_job.id IS NULL

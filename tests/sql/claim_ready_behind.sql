WITH picked AS MATERIALIZED (
  SELECT jobqueue_job.id AS id, jobqueue_job.visible_at AS visible_at, false AS expired
  FROM jobqueue_job
  WHERE jobqueue_job.queue = :for_queue::VARCHAR AND jobqueue_job.status = 'queued' AND jobqueue_job.task =
      any(:tasks::TEXT[]) AND (jobqueue_job.priority, jobqueue_job.visible_at, jobqueue_job.id) >
      (:last_priority::INTEGER, :last_visible_at::TIMESTAMP WITH TIME ZONE, :last_id::BIGINT)
  ORDER BY jobqueue_job.priority, jobqueue_job.visible_at, jobqueue_job.id
  LIMIT __[POSTCOMPILE_limit]
  FOR NO KEY UPDATE OF jobqueue_job SKIP LOCKED
), taken AS (
  UPDATE jobqueue_job
  SET status='claimed', attempt= (jobqueue_job.attempt + :attempt_1::INTEGER), token= (jobqueue_job.token +
      :token_1::BIGINT), visible_at= (statement_timestamp() + (interval '1 second' * (
    SELECT lanes.lease
    FROM unnest(:tasks::TEXT[], :leases::DOUBLE PRECISION[]) AS lanes(task, lease)
    WHERE jobqueue_job.task = lanes.task
  ))), claimed_at=statement_timestamp (), claimed_by=:worker::VARCHAR
  FROM unnest(array(
    (
      SELECT picked.id
      FROM picked
    )
  ), array(
    (
      SELECT picked.visible_at
      FROM picked
    )
  ), array(
    (
      SELECT picked.expired
      FROM picked
    )
  )) AS unfolded(id, runnable_since, expired)
  WHERE jobqueue_job.id = unfolded.id
  RETURNING jobqueue_job.id, jobqueue_job.queue, jobqueue_job.task, jobqueue_job.args, jobqueue_job.headers,
      jobqueue_job.priority, jobqueue_job.attempt, jobqueue_job.max_attempts, jobqueue_job.token,
      jobqueue_job.visible_at, jobqueue_job.enqueued_at, jobqueue_job.claimed_at, jobqueue_job.claimed_by,
      jobqueue_job.dedup_key, jobqueue_job.unique_key, unfolded.expired, unfolded.runnable_since
)
SELECT taken.id, taken.queue, taken.task, taken.args, taken.headers, taken.priority, taken.attempt,
    taken.max_attempts, taken.token, taken.visible_at, taken.enqueued_at, taken.claimed_at, taken.claimed_by,
    taken.dedup_key, taken.unique_key, EXISTS(
  SELECT *
  FROM jobqueue_dedup_key
  WHERE jobqueue_dedup_key.scope = taken.task AND jobqueue_dedup_key.key = taken.dedup_key
) AS duplicate, taken.expired, taken.runnable_since
FROM taken
ORDER BY taken.priority, taken.runnable_since, taken.id

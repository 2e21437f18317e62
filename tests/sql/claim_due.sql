WITH picked AS MATERIALIZED (
  SELECT picking.id AS id, picking.queue AS queue, picking.task AS task, picking.expired AS expired,
      picking.exhausted AS exhausted, seen.visible_at AS visible_at
  FROM (
    SELECT heads.id AS id, heads.priority AS priority, heads.visible_at AS visible_at, heads.token AS token
    FROM (
      (
        SELECT jobqueue_job.id AS id, jobqueue_job.priority AS priority, jobqueue_job.visible_at AS
            visible_at, jobqueue_job.token AS token
        FROM jobqueue_job
        WHERE jobqueue_job.queue = :for_queue::VARCHAR AND jobqueue_job.status = 'queued'
        ORDER BY jobqueue_job.priority, jobqueue_job.visible_at, jobqueue_job.id
        LIMIT __[POSTCOMPILE_reach]
      )
      UNION ALL (
        SELECT due.id AS id, due.priority AS priority, due.visible_at AS visible_at, due.token AS token
        FROM (
          SELECT jobqueue_job.id AS id, jobqueue_job.priority AS priority, jobqueue_job.visible_at AS
              visible_at, jobqueue_job.token AS token
          FROM jobqueue_job
          WHERE jobqueue_job.queue = :for_queue::VARCHAR AND jobqueue_job.status IN ('scheduled', 'claimed')
              AND jobqueue_job.visible_at <= statement_timestamp()
          ORDER BY jobqueue_job.visible_at
          LIMIT __[POSTCOMPILE_reach]
        ) AS due
        ORDER BY due.priority, due.visible_at, due.id
      )
    ) AS heads
    ORDER BY heads.priority, heads.visible_at, heads.id
  ) AS seen
  JOIN LATERAL (
    SELECT held.id AS id, held.queue AS queue, held.task AS task, held.status = 'claimed' AS expired,
        held.status = 'claimed' AND held.attempt >= held.max_attempts AS exhausted
    FROM jobqueue_job AS held
    WHERE held.id = seen.id AND held.token = seen.token AND held.visible_at = seen.visible_at
    FOR NO KEY UPDATE SKIP LOCKED
  ) AS picking ON true
  LIMIT __[POSTCOMPILE_limit]
), exhausted AS (
  DELETE FROM jobqueue_job USING picked
  WHERE jobqueue_job.id = picked.id AND picked.exhausted
  RETURNING jobqueue_job.id, jobqueue_job.queue, jobqueue_job.task, jobqueue_job.args, jobqueue_job.headers,
      jobqueue_job.status, jobqueue_job.priority, jobqueue_job.attempt, jobqueue_job.max_attempts,
      jobqueue_job.token, jobqueue_job.visible_at, jobqueue_job.enqueued_at, jobqueue_job.claimed_at,
      jobqueue_job.claimed_by, jobqueue_job.dedup_key, jobqueue_job.unique_key, jobqueue_job.errors
), graves AS (
  INSERT INTO jobqueue_dead_letter(job_id, queue, task, args, headers, priority, attempt, max_attempts, token,
      enqueued_at, dedup_key, unique_key, errors, reason, died_at)
  SELECT exhausted.id AS id, exhausted.queue AS queue, exhausted.task AS task, exhausted.args AS args,
      exhausted.headers AS headers, exhausted.priority AS priority, exhausted.attempt AS attempt,
      exhausted.max_attempts AS max_attempts, exhausted.token AS token, exhausted.enqueued_at AS enqueued_at,
      exhausted.dedup_key AS dedup_key, exhausted.unique_key AS unique_key, CASE WHEN
      (jsonb_array_length(exhausted.errors) >= :jsonb_array_length_1::INTEGER) THEN exhausted.errors - 0 ELSE
      exhausted.errors END || jsonb_build_array(jsonb_build_object('attempt', exhausted.attempt, 'at',
      statement_timestamp(), 'error', 'lease expired', 'worker', exhausted.claimed_by)) AS anon_1,
      'lease_expired', statement_timestamp() AS statement_timestamp_1
  FROM exhausted
  RETURNING jobqueue_dead_letter.job_id
), counted AS (
  INSERT INTO jobqueue_rollup(minute, queue, task, metric, bucket, count)
  SELECT date_trunc(:date_trunc_2::VARCHAR, statement_timestamp()) AS date_trunc_1, expiries.queue AS queue,
      expiries.task AS task, expiries.metric AS metric, -1, expiries.count AS count
  FROM (
    SELECT picked.queue AS queue, picked.task AS task, CASE WHEN picked.exhausted THEN 'dead' ELSE 'requeued'
        END AS metric, count(*) AS count
    FROM picked
    WHERE picked.expired
    GROUP BY picked.queue, picked.task, picked.exhausted
  ) AS expiries
  ON CONFLICT (minute, queue, task, metric, bucket, shard) DO UPDATE
  SET count = (jobqueue_rollup.count + excluded.count)
), taken AS (
  UPDATE jobqueue_job
  SET status='claimed', attempt= (jobqueue_job.attempt + :attempt_1::INTEGER), token= (jobqueue_job.token +
      :token_1::BIGINT), visible_at= (statement_timestamp() + :lease), claimed_at=statement_timestamp (),
      claimed_by=:worker::VARCHAR, errors=CASE WHEN unfolded.expired THEN CASE WHEN
      (jsonb_array_length(jobqueue_job.errors) >= :jsonb_array_length_2::INTEGER) THEN jobqueue_job.errors - 0
      ELSE jobqueue_job.errors END || jsonb_build_array(jsonb_build_object('attempt', jobqueue_job.attempt,
      'at', statement_timestamp(), 'error', 'lease expired', 'worker', jobqueue_job.claimed_by)) ELSE
      jobqueue_job.errors END
  FROM unnest(array(
    (
      SELECT picked.id
      FROM picked
      WHERE NOT picked.exhausted
    )
  ), array(
    (
      SELECT picked.visible_at
      FROM picked
      WHERE NOT picked.exhausted
    )
  ), array(
    (
      SELECT picked.expired
      FROM picked
      WHERE NOT picked.exhausted
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
UNION ALL SELECT NULL AS anon_2, NULL AS anon__1, NULL AS anon__2, NULL AS anon__3, NULL AS anon__4, NULL AS
    anon__5, NULL AS anon__6, NULL AS anon__7, NULL AS anon__8, NULL AS anon__9, NULL AS anon__10, NULL AS
    anon__11, NULL AS anon__12, NULL AS anon__13, NULL AS anon__14, NULL AS anon__15, NULL AS anon__16, NULL
    AS anon__17
FROM picked
WHERE picked.exhausted
ORDER BY priority, runnable_since, id

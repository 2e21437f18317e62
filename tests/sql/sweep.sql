WITH due AS MATERIALIZED (
  SELECT jobqueue_job.id AS id, jobqueue_job.queue AS queue, jobqueue_job.task AS task, jobqueue_job.status =
      'claimed' AS expired, jobqueue_job.status = 'claimed' AND jobqueue_job.attempt >=
      jobqueue_job.max_attempts AS exhausted
  FROM jobqueue_job
  WHERE jobqueue_job.queue = :for_queue::VARCHAR AND jobqueue_job.status IN ('scheduled', 'claimed') AND
      jobqueue_job.visible_at <= statement_timestamp() AND jobqueue_job.visible_at <= statement_timestamp() -
      (interval '1 second' * CASE WHEN (jobqueue_job.status = 'claimed') THEN (:jitter *
      (hashint8extended(jobqueue_job.id, jobqueue_job.token) & 1023)) / CAST(1024 AS DOUBLE PRECISION) ELSE 0
      END)
  ORDER BY jobqueue_job.visible_at
  LIMIT __[POSTCOMPILE_limit]
  FOR NO KEY UPDATE SKIP LOCKED
), moved AS (
  UPDATE jobqueue_job
  SET status='queued', claimed_at=NULL, claimed_by=NULL, errors=CASE WHEN due.expired THEN CASE WHEN
      (jsonb_array_length(jobqueue_job.errors) >= :jsonb_array_length_1::INTEGER) THEN jobqueue_job.errors - 0
      ELSE jobqueue_job.errors END || jsonb_build_array(jsonb_build_object('attempt', jobqueue_job.attempt,
      'at', statement_timestamp(), 'error', 'lease expired', 'worker', jobqueue_job.claimed_by)) ELSE
      jobqueue_job.errors END
  FROM due
  WHERE jobqueue_job.id = due.id AND NOT due.exhausted
), exhausted AS (
  DELETE FROM jobqueue_job USING due
  WHERE jobqueue_job.id = due.id AND due.exhausted
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
      (jsonb_array_length(exhausted.errors) >= :jsonb_array_length_2::INTEGER) THEN exhausted.errors - 0 ELSE
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
    SELECT due.queue AS queue, due.task AS task, CASE WHEN due.exhausted THEN 'dead' ELSE 'requeued' END AS
        metric, count(*) AS count
    FROM due
    WHERE due.expired
    GROUP BY due.queue, due.task, due.exhausted
  ) AS expiries
  ON CONFLICT (minute, queue, task, metric, bucket, shard) DO UPDATE
  SET count = (jobqueue_rollup.count + excluded.count)
)
SELECT CASE WHEN due.exhausted THEN 'dead' WHEN due.expired THEN 'requeued' ELSE 'promoted' END AS kind,
    count(*) AS count
FROM due
GROUP BY CASE WHEN due.exhausted THEN 'dead' WHEN due.expired THEN 'requeued' ELSE 'promoted' END

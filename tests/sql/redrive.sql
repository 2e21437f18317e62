WITH chosen AS MATERIALIZED (
  SELECT jobqueue_dead_letter.id AS id, jobqueue_dead_letter.job_id AS job_id, jobqueue_dead_letter.queue AS
      queue, jobqueue_dead_letter.task AS task, jobqueue_dead_letter.args AS args,
      jobqueue_dead_letter.headers AS headers, jobqueue_dead_letter.priority AS priority,
      jobqueue_dead_letter.attempt AS attempt, jobqueue_dead_letter.max_attempts AS max_attempts,
      jobqueue_dead_letter.token AS token, jobqueue_dead_letter.enqueued_at AS enqueued_at,
      jobqueue_dead_letter.dedup_key AS dedup_key, jobqueue_dead_letter.unique_key AS unique_key,
      jobqueue_dead_letter.errors AS errors, jobqueue_dead_letter.reason AS reason,
      jobqueue_dead_letter.died_at AS died_at, jobqueue_dead_letter.redriven_at AS redriven_at
  FROM jobqueue_dead_letter
  WHERE jobqueue_dead_letter.redriven_at IS NULL AND (CAST(:ids::BIGINT[] AS BIGINT[]) IS NULL OR
      jobqueue_dead_letter.job_id = any(:ids::BIGINT[])) AND (CAST(:for_queue::VARCHAR AS TEXT) IS NULL OR
      jobqueue_dead_letter.queue = CAST(:for_queue::VARCHAR AS TEXT)) AND (CAST(:for_task::VARCHAR AS TEXT) IS
      NULL OR jobqueue_dead_letter.task = CAST(:for_task::VARCHAR AS TEXT))
  ORDER BY jobqueue_dead_letter.died_at, jobqueue_dead_letter.id
  LIMIT __[POSTCOMPILE_limit]
  FOR UPDATE SKIP LOCKED
), revived AS (
  INSERT INTO jobqueue_job(id, queue, task, args, headers, priority, max_attempts, token, enqueued_at,
      dedup_key, unique_key, errors, status, visible_at)
  SELECT chosen.job_id AS job_id, chosen.queue AS queue, chosen.task AS task, chosen.args AS args,
      chosen.headers AS headers, chosen.priority AS priority, chosen.max_attempts AS max_attempts,
      chosen.token AS token, chosen.enqueued_at AS enqueued_at, chosen.dedup_key AS dedup_key,
      chosen.unique_key AS unique_key, chosen.errors AS errors, 'queued', statement_timestamp() AS
      statement_timestamp_1
  FROM chosen
  ON CONFLICT DO NOTHING
  RETURNING jobqueue_job.id
), marked AS (
  UPDATE jobqueue_dead_letter
  SET redriven_at=statement_timestamp ()
  FROM chosen, revived
  WHERE jobqueue_dead_letter.id = chosen.id AND chosen.job_id = revived.id
)
SELECT chosen.job_id, chosen.queue, revived.id IS NOT NULL AS redriven
FROM chosen
LEFT OUTER JOIN revived ON revived.id = chosen.job_id
ORDER BY chosen.id

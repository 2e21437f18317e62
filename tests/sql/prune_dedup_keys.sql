WITH aged AS MATERIALIZED (
  SELECT ctid AS place, jobqueue_dedup_key.key AS key
  FROM jobqueue_dedup_key
  WHERE jobqueue_dedup_key.created_at < transaction_timestamp() - CAST(:age AS INTERVAL) AND ctid >
      CAST(:behind::VARCHAR AS tid) AND ctid < CAST(:before::VARCHAR AS tid)
  ORDER BY ctid
  LIMIT __[POSTCOMPILE_limit]
  FOR UPDATE SKIP LOCKED
), held AS MATERIALIZED (
  SELECT aged.key AS key
  FROM aged INTERSECT (
    SELECT coalesce(jobqueue_job.dedup_key, 'job#' || CAST(jobqueue_job.id AS TEXT)) AS coalesce_1
    FROM jobqueue_job
    WHERE EXISTS(
      SELECT aged.key
      FROM aged
    )
    UNION ALL SELECT coalesce(jobqueue_dead_letter.dedup_key, 'job#' || CAST(jobqueue_dead_letter.job_id AS
        TEXT)) AS coalesce_2
    FROM jobqueue_dead_letter
    WHERE jobqueue_dead_letter.redriven_at IS NULL AND (EXISTS(
      SELECT aged.key
      FROM aged
    ))
  )
), gone AS (
  DELETE FROM jobqueue_dedup_key
  WHERE ctid = any(array(
    (
      SELECT aged.place
      FROM aged
      WHERE (aged.key NOT IN (
        SELECT held.key
        FROM held
      ))
    )
  ))
  RETURNING 1 AS one
)
SELECT (
  SELECT count(*) AS count_1
  FROM gone
) AS pruned, (
  SELECT count(*) AS count_2
  FROM aged
) AS seen, (
  SELECT CAST(max(aged.place) AS TEXT) AS max_1
  FROM aged
) AS last, pg_relation_size($name$jobqueue_dedup_key$name$::regclass) / current_setting('block_size') ::int AS
    pages

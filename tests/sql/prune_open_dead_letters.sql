WITH aged AS MATERIALIZED (
  SELECT ctid AS place
  FROM jobqueue_dead_letter
  WHERE jobqueue_dead_letter.redriven_at IS NULL AND jobqueue_dead_letter.died_at < transaction_timestamp() -
      CAST(:age AS INTERVAL) AND ctid > CAST(:behind::VARCHAR AS tid) AND ctid < CAST(:before::VARCHAR AS tid)
  ORDER BY ctid
  LIMIT __[POSTCOMPILE_limit]
  FOR UPDATE SKIP LOCKED
), gone AS (
  DELETE FROM jobqueue_dead_letter
  WHERE ctid = any(array(
    (
      SELECT aged.place
      FROM aged
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
) AS last, pg_relation_size($name$jobqueue_dead_letter$name$::regclass) / current_setting('block_size') ::int
    AS pages

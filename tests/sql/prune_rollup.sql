WITH aged AS MATERIALIZED (
  SELECT ctid AS place, jobqueue_rollup.minute AS at
  FROM jobqueue_rollup
  WHERE jobqueue_rollup.minute < date_trunc('minute', transaction_timestamp() - CAST(:age AS INTERVAL)) AND
      jobqueue_rollup.minute >= :since::TIMESTAMP WITH TIME ZONE
  ORDER BY jobqueue_rollup.minute
  LIMIT __[POSTCOMPILE_limit]
  FOR UPDATE SKIP LOCKED
), gone AS (
  DELETE FROM jobqueue_rollup
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
  SELECT max(aged.at) AS max_1
  FROM aged
) AS last

SELECT statement_timestamp() AS at, greatest(
  (
    SELECT min(jobqueue_rollup.minute) AS min_1
    FROM jobqueue_rollup
    WHERE jobqueue_rollup.minute >= date_trunc(:date_trunc_1::VARCHAR, statement_timestamp() - :window)
  ), statement_timestamp() - :window
) AS since

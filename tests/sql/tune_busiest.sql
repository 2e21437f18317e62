SELECT minutes.task, max(minutes.runs) AS runs
FROM (
  SELECT jobqueue_rollup.task AS task, CAST(sum(jobqueue_rollup.count) AS BIGINT) AS runs
  FROM jobqueue_rollup
  WHERE jobqueue_rollup.minute >= date_trunc(:date_trunc_1::VARCHAR, statement_timestamp() - :window) AND
      jobqueue_rollup.metric = 'seconds'
  GROUP BY jobqueue_rollup.minute, jobqueue_rollup.task
) AS minutes
GROUP BY minutes.task

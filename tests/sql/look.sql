SELECT asked.queue, (
  SELECT jobqueue_job.id
  FROM jobqueue_job
  WHERE jobqueue_job.queue = asked.queue AND jobqueue_job.status = 'queued'
  ORDER BY jobqueue_job.priority, jobqueue_job.visible_at, jobqueue_job.id
  LIMIT 1
) IS NOT NULL AS ready, CAST(EXTRACT(epoch FROM (
  SELECT min(jobqueue_job.visible_at) AS min_1
  FROM jobqueue_job
  WHERE jobqueue_job.queue = asked.queue AND jobqueue_job.status IN ('scheduled', 'claimed')
) - statement_timestamp()) AS DOUBLE PRECISION) AS due_in
FROM unnest(:for_queues::TEXT[]) AS asked(queue)

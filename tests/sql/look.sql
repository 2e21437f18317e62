SELECT asked.queue, EXISTS(
  SELECT *
  FROM jobqueue_job
  WHERE jobqueue_job.queue = asked.queue AND jobqueue_job.status = 'queued'
) AS ready, CAST(EXTRACT(epoch FROM (
  SELECT min(jobqueue_job.visible_at) AS min_1
  FROM jobqueue_job
  WHERE jobqueue_job.queue = asked.queue AND jobqueue_job.status IN ('scheduled', 'claimed')
) - statement_timestamp()) AS DOUBLE PRECISION) AS due_in
FROM unnest(:for_queues::TEXT[]) AS asked(queue)

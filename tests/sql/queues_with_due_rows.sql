WITH RECURSIVE hop(queue) AS (
  SELECT min(jobqueue_job.queue) AS queue
  FROM jobqueue_job
  WHERE jobqueue_job.status IN ('scheduled', 'claimed')
  UNION ALL SELECT (
    SELECT min(jobqueue_job.queue) AS min_1
    FROM jobqueue_job
    WHERE jobqueue_job.status IN ('scheduled', 'claimed') AND jobqueue_job.queue > hop.queue
  ) AS anon_1
  FROM hop
  WHERE hop.queue IS NOT NULL
)
SELECT hop.queue
FROM hop
WHERE hop.queue IS NOT NULL

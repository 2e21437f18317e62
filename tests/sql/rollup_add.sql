INSERT INTO jobqueue_rollup(minute, queue, task, metric, bucket, count)
SELECT date_trunc(:date_trunc_2::VARCHAR, statement_timestamp()) AS date_trunc_1, given.queue, given.task,
    given.metric, given.bucket, given.count
FROM unnest(:queues::TEXT[], :tasks::TEXT[], :metrics::TEXT[], :buckets::SMALLINT[], :counts::BIGINT[]) AS
    given(queue, task, metric, bucket, count)
ON CONFLICT (minute, queue, task, metric, bucket, shard) DO UPDATE
SET count = (jobqueue_rollup.count + excluded.count)

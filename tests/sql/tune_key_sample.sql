SELECT count(*) AS keys, count(*) FILTER (WHERE starts_with(jobqueue_dedup_key_1.key, 'job#')) AS own
FROM jobqueue_dedup_key AS jobqueue_dedup_key_1 TABLESAMPLE system(:percent)

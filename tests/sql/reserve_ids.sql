WITH sequence AS MATERIALIZED (
  SELECT CAST(pg_get_serial_sequence('jobqueue_job', 'id') AS REGCLASS) AS name
)
SELECT array_agg(nextval(sequence.name)) AS ids
FROM sequence
JOIN generate_series(:generate_series_1::INTEGER, :count::INTEGER) AS each(n) ON true
WHERE has_sequence_privilege(sequence.name, 'USAGE') AND NOT row_security_active('jobqueue_job')

CREATE MATERIALIZED VIEW by_key AS
SELECT key, count(*) AS records, max(timestamp) AS last_at
FROM events
GROUP BY key;

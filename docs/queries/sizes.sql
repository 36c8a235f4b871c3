-- How large are robots.txt files?
-- Definition: none.
-- Over: sites that answered with status 200 and a whole answer.
-- Caveat: files are cut at 500 KiB, or --max-body: bytes are those kept, and cut files are in the last class.
SELECT CASE WHEN truncated OR body_bytes > 512000 THEN 'above 500 KiB' WHEN body_bytes = 0 THEN 'empty' WHEN body_bytes < 100 THEN 'below 100 B'
    WHEN body_bytes < 1024 THEN 'below 1 KiB' WHEN body_bytes < 10240 THEN 'below 10 KiB'
    WHEN body_bytes < 102400 THEN 'below 100 KiB' ELSE 'up to 500 KiB' END AS size,
  count(*) AS sites, count(*) / sum(count(*)) OVER () AS share, CAST(sum(body_bytes) AS BIGINT) AS bytes
FROM sites
WHERE scan_date = latest() AND outcome = 'answered' AND status = 200
GROUP BY size
ORDER BY max(truncated), min(body_bytes);

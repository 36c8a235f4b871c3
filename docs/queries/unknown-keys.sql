-- Which undefined and which obsolete keys do files have?
-- Definition: none.
-- Over: all sites, whatever their finding, and lines in evidence.
-- Caveat: evidence keeps 32 lines a site and kind, and none of these kinds for HTML pages.
SELECT kind, key, CAST(sum(sites) AS BIGINT) AS sites, CAST(sum(lines) AS BIGINT) AS lines
FROM record_stats
WHERE scan_date = latest() AND kind IN ('unknown', 'legacy')
GROUP BY kind, key
ORDER BY sites DESC, lines DESC, kind, key
LIMIT 100;

-- How are the scores of the check robots.txt distributed?
-- Definition: none; see docs/CHECKS.md.
-- Over: sites that were asked.
-- Caveat: an answer that is not 2xx fails the check, though it may allow everything.
SELECT score, check_status, count(*) AS sites, count(*) / sum(count(*)) OVER () AS share
FROM sites
WHERE scan_date = latest() AND access <> 'unknown'
GROUP BY score, check_status
ORDER BY score, check_status;

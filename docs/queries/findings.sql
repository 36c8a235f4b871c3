-- What did the scan find at sites, in one word each?
-- Definition: none; see docs/CHECKS.md.
-- Over: all sites.
-- Caveat: rate_limited, challenged, server_error and unreachable say nothing of a site's rules.
SELECT finding, count(*) AS sites, count(*) / sum(count(*)) OVER () AS share
FROM sites
WHERE scan_date = latest()
GROUP BY finding
ORDER BY sites DESC, finding;

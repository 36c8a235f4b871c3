-- How many sites block some crawler of each operator, restrict one, or let all in?
-- Definition: full and partial; of all the operator's tokens the strictest verdict counts.
-- Over: sites with rules; the three add up to them.
-- Caveat: a site that blocks one of ten crawlers of an operator is blocked here; site_blocks tells which.
SELECT value AS operator, CAST(coalesce(sum(sites) FILTER (verdict = 'blocked'), 0) AS BIGINT) AS blocked,
  CAST(coalesce(sum(sites) FILTER (verdict = 'partial'), 0) AS BIGINT) AS partial,
  CAST(coalesce(sum(sites) FILTER (verdict = 'allowed'), 0) AS BIGINT) AS allowed, blocked / sum(sites) AS share_blocked
FROM rollups
WHERE scan_date = latest() AND kind = 'operator'
GROUP BY value
ORDER BY share_blocked DESC, operator;

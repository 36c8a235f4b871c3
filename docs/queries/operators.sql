-- How many sites block, restrict or admit the crawlers of each operator?
-- Definition: full and partial; the strictest verdict of the operator's tokens counts.
-- Over: sites with rules; the three add up to them.
-- Caveat: blocking one of an operator's ten crawlers counts as blocked; site_blocks says which.
SELECT value AS operator, CAST(coalesce(sum(sites) FILTER (verdict = 'blocked'), 0) AS BIGINT) AS blocked,
  CAST(coalesce(sum(sites) FILTER (verdict = 'partial'), 0) AS BIGINT) AS partial,
  CAST(coalesce(sum(sites) FILTER (verdict = 'allowed'), 0) AS BIGINT) AS allowed, blocked / sum(sites) AS share_blocked
FROM rollups
WHERE scan_date = latest() AND kind = 'operator'
GROUP BY value
ORDER BY share_blocked DESC, operator;

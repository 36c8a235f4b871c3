-- With which HTTP status do popular sites and others answer?
-- Definition: none.
-- Over: sites that answered with a status, after redirects; segments are not cumulative. NULL has no rank.
-- Caveat: a redirect as the last status was not followed: too many, or an invalid target.
SELECT *, sites / sum(sites) OVER (PARTITION BY ranks_to) AS share
FROM (SELECT rank_bucket(rank) AS ranks_to, status, count(*) AS sites
  FROM sites WHERE scan_date = latest() AND status IS NOT NULL GROUP BY ALL)
ORDER BY ranks_to NULLS LAST, sites DESC, status;

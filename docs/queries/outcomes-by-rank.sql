-- How do requests for robots.txt end, among popular sites and others?
-- Definition: none; see docs/outcomes.md.
-- Over: all sites of a rank segment, not cumulative: 10000 is ranks 1001 to 10000. NULL has no rank.
-- Caveat: opted_out and blocked_address were not asked.
SELECT *, sites / sum(sites) OVER (PARTITION BY ranks_to) AS share
FROM (SELECT rank_bucket(rank) AS ranks_to, outcome, count(*) AS sites
  FROM sites WHERE scan_date = latest() GROUP BY ALL)
ORDER BY ranks_to NULLS LAST, sites DESC, outcome;

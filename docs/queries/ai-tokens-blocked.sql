-- How many AI tokens does a site block?
-- Definition: full, by name or by `*`.
-- Over: sites with rules.
-- Caveat: a site that blocks `*` entirely blocks all tokens that heed it: the peak at the upper end.
SELECT n AS tokens_blocked, CAST(sum(sites) AS BIGINT) AS sites
FROM (SELECT sites, len(list_intersect(blocked_sets.tokens, ai)) AS n
  FROM blocked_sets, (SELECT list(token) AS ai FROM tokens WHERE category = 'ai') WHERE scan_date = latest())
GROUP BY n
ORDER BY n;

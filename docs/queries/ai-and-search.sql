-- How many sites block AI crawlers, search engines, both, or neither?
-- Definition: full, of at least one token of the category.
-- Over: sites with rules.
-- Caveat: a site that blocks `*` entirely blocks both. One of many search engines is enough.
SELECT list_has_any(blocked_sets.tokens, ai) AS ai_blocked, list_has_any(blocked_sets.tokens, search) AS search_blocked,
  CAST(sum(sites) AS BIGINT) AS sites, sum(sites) / sum(sum(sites)) OVER () AS share
FROM blocked_sets, (SELECT list(token) FILTER (category = 'ai') AS ai, list(token) FILTER (category = 'search') AS search FROM tokens)
WHERE scan_date = latest()
GROUP BY ai_blocked, search_blocked
ORDER BY ai_blocked, search_blocked;

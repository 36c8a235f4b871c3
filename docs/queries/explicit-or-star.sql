-- Of the sites that block a token entirely, how many do so by its name, by the name that it falls back to, and by `*`?
-- Definition: full; the three add up to it.
-- Over: counts of sites with rules.
-- Caveat: a group that names the token and blocks it counts as own even where `*` blocks everybody anyway.
SELECT token, CAST(sum(sites) FILTER (via IS NULL) AS BIGINT) AS blocking,
  count(*) FILTER (via = 'own') AS own, count(*) FILTER (via = 'fallback') AS fallback, blocking - own - fallback AS star
FROM (SELECT token, NULL AS via, 0 AS sites FROM tokens
  UNION ALL SELECT unnest(blocked_sets.tokens), NULL, sites FROM blocked_sets WHERE scan_date = latest()
  UNION ALL SELECT token, via, 1 FROM verdicts
  WHERE scan_date = latest() AND known AND verdict = 'blocked' AND via IN ('own', 'fallback') AND NOT lenient)
GROUP BY token
ORDER BY blocking DESC, token;

-- Of the sites that block a token entirely, how many do so by its name, by the name that it falls back to, and by `*`?
-- Definition: full; the three add up to it.
-- Over: counts of sites with rules.
-- Caveat: a group that names the token and blocks it counts as own even where `*` blocks everybody anyway.
SELECT token, any_value(stats."full") AS blocking,
  count(*) FILTER (via = 'own') AS own, count(*) FILTER (via = 'fallback') AS fallback, blocking - own - fallback AS star
FROM (SELECT token, CAST(sum("full") AS BIGINT) AS "full" FROM token_stats
  WHERE scan_date = latest() AND known AND segment_kind = 'all' GROUP BY token) AS stats
LEFT JOIN (SELECT token, via FROM verdicts
  WHERE scan_date = latest() AND verdict = 'blocked' AND via IN ('own', 'fallback') AND NOT lenient) USING (token)
GROUP BY token
ORDER BY blocking DESC, token;

-- Of the sites that block a token entirely, how many do so by its name, by its fallback's, and by `*`?
-- Definition: full; the three add up to it.
-- Over: sites with rules.
-- Caveat: a group that names and blocks the token counts as own even if `*` blocks everything too.
SELECT token, CAST(sum(sites) FILTER (via IS NULL) AS BIGINT) AS blocking,
  count(*) FILTER (via = 'own') AS own, count(*) FILTER (via = 'fallback') AS fallback, blocking - own - fallback AS star
FROM (SELECT token, NULL AS via, 0 AS sites FROM tokens
  UNION ALL SELECT unnest(blocked_sets.tokens), NULL, sites FROM blocked_sets WHERE scan_date = latest()
  UNION ALL SELECT token, via, 1 FROM verdicts SEMI JOIN (FROM sites WHERE scan_date = latest() AND finding = 'rules') USING (scan_id, seq)
  WHERE scan_date = latest() AND known AND verdict = 'blocked' AND via IN ('own', 'fallback') AND NOT lenient)
GROUP BY token
ORDER BY blocking DESC, token;

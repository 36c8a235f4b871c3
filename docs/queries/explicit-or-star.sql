-- Of the sites that block a token entirely, how many do so by its name, by its fallback's, and by `*`?
-- Definition: full; the three add up to it.
-- Over: sites with rules.
-- Caveat: a group that names and blocks the token counts as own even if `*` blocks everything too.
SELECT token, CAST(coalesce(sum(sites), 0) AS BIGINT) AS blocking, CAST(coalesce(sum(sites) FILTER (via = 'own'), 0) AS BIGINT) AS own,
  CAST(coalesce(sum(sites) FILTER (via = 'fallback'), 0) AS BIGINT) AS fallback, blocking - own - fallback AS star
FROM (SELECT token FROM tokens) LEFT JOIN (FROM policy_sites JOIN policy_tokens USING (scan_date, policy_id) WHERE scan_date = latest() AND "full") USING (token)
GROUP BY token
ORDER BY blocking DESC, token;

-- Cloudflare Radar's "AI user agents found in robots.txt": who is named, and is it disallowed fully or partially?
-- Definition: the verdict of the agent's own group.
-- Over: counts of sites with rules among the first 10000, as Radar has the first 10000 domains.
-- Caveat: Radar reads lines, we the verdict of the group: with an exception for one path, Disallow: / is partial in both.
SELECT token, count(*) AS named, count(*) FILTER (verdict = 'blocked') AS fully, count(*) FILTER (verdict = 'partial') AS partially,
  count(*) FILTER (verdict = 'allowed') AS allowed
FROM verdicts
WHERE scan_date = latest() AND category = 'ai' AND via = 'own' AND NOT lenient AND rank <= 10000
GROUP BY token
ORDER BY named DESC, token;

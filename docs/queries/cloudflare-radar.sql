-- Cloudflare Radar's "AI user agents found in robots.txt": which are named, and fully or partially disallowed?
-- Definition: the verdict of the agent's own group.
-- Over: sites with rules among the first 10000, as Radar has the first 10000 domains.
-- Caveat: Radar reads lines, bulkscan the group's verdict; Disallow: / with an exception is partial in both.
SELECT token, count(*) AS named, count(*) FILTER (verdict = 'blocked') AS fully, count(*) FILTER (verdict = 'partial') AS partially,
  count(*) FILTER (verdict = 'allowed') AS allowed
FROM verdicts SEMI JOIN (FROM sites WHERE scan_date = latest() AND finding = 'rules') USING (scan_id, seq)
WHERE scan_date = latest() AND category = 'ai' AND via = 'own' AND NOT lenient AND rank <= 10000
GROUP BY token
ORDER BY named DESC, token;

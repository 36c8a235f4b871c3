-- Cloudflare Radar's "AI user agents found in robots.txt": which are named, and fully or partially disallowed?
-- Definition: the verdict of the agent's own group.
-- Over: sites with rules among the first 10000, as Radar has the first 10000 domains.
-- Caveat: Radar reads lines, bulkscan the group's verdict; Disallow: / with an exception is partial in both.
SELECT token, count(*) AS named, count(*) FILTER ("full") AS fully, count(*) FILTER (p.partial) AS partially, count(*) FILTER (NOT "any") AS allowed
FROM sites JOIN policy_tokens AS p USING (scan_date, policy_id)
WHERE scan_date = latest() AND finding = 'rules' AND category = 'ai' AND mention AND rank <= 10000
GROUP BY token
ORDER BY named DESC, token;

-- Common Crawl's experiments on robots.txt: which agents are named most, known or not?
-- Definition: mention and lenient rank them; explicit_root is shown, too.
-- Over: sites with rules.
-- Caveat: Common Crawl counts captures of hosts and names as written, in lower case; bulkscan counts product tokens, and in lenient the sites that name a token only by the second reading.
SELECT token, known, CAST(sum(mention) AS BIGINT) AS mention, CAST(sum(explicit_root) AS BIGINT) AS explicit_root, CAST(sum(lenient) AS BIGINT) AS lenient, sum(mention) / max(sum(sites_rules)) OVER () AS share
FROM token_stats
WHERE scan_date = latest() AND segment_kind = 'all'
GROUP BY token, known
ORDER BY sum(mention) + sum(lenient) DESC, token
LIMIT 100;

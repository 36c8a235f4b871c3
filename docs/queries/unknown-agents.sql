-- Which agents that the registry does not know do files name?
-- Definition: mention ranks them; explicit_root and full are shown, too.
-- Over: sites with rules.
-- Caveat: names are product tokens in lower case, which several crawlers may share. Of several scans of a date, full is of those that name it.
SELECT token, CAST(sum(mention) AS BIGINT) AS mention, CAST(sum(explicit_root) AS BIGINT) AS explicit_root, CAST(sum("full") AS BIGINT) AS "full"
FROM token_stats
WHERE scan_date = latest() AND NOT known AND segment_kind = 'all'
GROUP BY token
HAVING sum(mention) > 0
ORDER BY mention DESC, token
LIMIT 100;

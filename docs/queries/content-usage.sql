-- What do Content-Usage records (IETF AIPREF) say of the home page, to `*` and to named agents?
-- Definition: none; what the group's records say about /.
-- Over: sites with rules; a site may be in both scopes.
-- Caveat: a record says what a site wishes, and not what crawlers do.
SELECT CASE token WHEN '*' THEN '*' ELSE 'named' END AS scope, content_usage, count(DISTINCT (scan_id, seq)) AS sites
FROM verdicts SEMI JOIN (FROM sites WHERE scan_date = latest() AND finding = 'rules') USING (scan_id, seq)
WHERE scan_date = latest() AND via IN ('own', 'star') AND NOT lenient AND content_usage IS NOT NULL
GROUP BY ALL
ORDER BY scope, sites DESC, content_usage;

-- Which Content-Signals do sites give to the whole file, `*`, or agents by name?
-- Definition: none; lines of a group add up, `no` over `yes`, for what they say of `/`. Before any group all lines without a path count.
-- Over: sites with rules; a site may be in several scopes.
-- Caveat: a signal says what a site wishes, and not what crawlers do.
SELECT scope, signal, count(DISTINCT (scan_id, seq)) AS sites
FROM (SELECT scan_id, seq, CASE token WHEN '*' THEN '*' ELSE 'named' END AS scope, unnest(string_split(content_signal, ', ')) AS signal
  FROM verdicts WHERE scan_date = latest() AND via IN ('own', 'star') AND NOT lenient AND content_signal IS NOT NULL
  UNION ALL
  SELECT scan_id, seq, 'file', unnest(string_split(lower(regexp_replace(value, '[ \t]', '', 'g')), ','))
  FROM evidence WHERE scan_date = latest() AND kind = 'signal' AND group_line IS NULL AND NOT regexp_matches(value, '^[/*]'))
SEMI JOIN (FROM sites WHERE scan_date = latest() AND finding = 'rules') USING (scan_id, seq)
WHERE signal <> ''
GROUP BY ALL
ORDER BY scope, sites DESC, signal;

-- From the scan before to the newest: how many sites began to block a crawler, ceased to, or changed otherwise?
-- Definition: full; blocked and open are of sites with rules, the others are what the server's answer means.
-- Over: sites of both scans, and those of one (absent in the other), by host, port and requested scheme.
-- Caveat: the token stands twice; a site that is in the list of only one date is absent, not gone.
SELECT coalesce(earlier.state, 'absent') AS before, coalesce(later.state, 'absent') AS after, count(*) AS sites
FROM (SELECT host, port, requested, CASE WHEN access <> 'conditional' THEN access
    WHEN list_contains(blocked, 'GPTBot') THEN 'blocked' ELSE 'open' END AS state
  FROM sites WHERE scan_date = (SELECT max(scan_date) FROM scans WHERE scan_date < latest())) AS earlier
FULL JOIN (SELECT host, port, requested, CASE WHEN access <> 'conditional' THEN access
    WHEN list_contains(blocked, 'GPTBot') THEN 'blocked' ELSE 'open' END AS state
  FROM sites WHERE scan_date = latest()) AS later USING (host, port, requested)
GROUP BY ALL
ORDER BY sites DESC, before, after;

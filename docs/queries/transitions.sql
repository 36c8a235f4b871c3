-- From the previous scan to the newest: how many sites began or ceased to block a crawler, or changed otherwise?
-- Definition: full; blocked and open are of sites with rules, the others by their finding.
-- Over: sites of both dates, or of one (absent in the other), by host, port and requested scheme.
-- Caveat: a site listed on only one date is absent, not gone; of several rows of a date the last fetched counts.
SELECT coalesce(earlier, 'absent') AS before, coalesce(later, 'absent') AS after, count(*) AS sites
FROM (SELECT arg_max(state, fetched) FILTER (scan_date < latest()) AS earlier, arg_max(state, fetched) FILTER (scan_date = latest()) AS later
  FROM (SELECT scan_date, host, port, requested, coalesce(fetched_at, '-infinity') AS fetched, CASE WHEN finding <> 'rules' THEN finding
      WHEN list_contains(blocked, 'GPTBot') THEN 'blocked' ELSE 'open' END AS state
    FROM sites WHERE scan_date IN (latest(), (SELECT max(scan_date) FROM scans WHERE chosen AND scan_date < latest())))
  GROUP BY host, port, requested)
GROUP BY ALL
ORDER BY sites DESC, before, after;

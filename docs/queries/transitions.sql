-- From the night before to the newest: how many sites began or ceased to block a crawler, or changed otherwise?
-- Definition: full; blocked and open are of sites with rules, the others by their finding.
-- Over: all sites of both nights, or of one (unlisted later, or absent before), by host, port and requested scheme.
-- Caveat: a failure is no change, and neither is what another observer or registry sees; there, change is null.
SELECT before, after, change, count(*) AS sites
FROM transitions(latest() - 1, latest(), 'GPTBot')
GROUP BY ALL
ORDER BY sites DESC, before, after, change;

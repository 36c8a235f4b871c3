-- On which date were sites first seen to block a crawler?
-- Definition: full.
-- Over: sites that blocked it on any date; those of the first date may have begun long before.
-- Caveat: a site that stopped and began again counts on its first date.
SELECT first_blocked, count(*) AS sites, CAST(sum(count(*)) OVER (ORDER BY first_blocked) AS BIGINT) AS so_far
FROM (SELECT min(scan_date) AS first_blocked FROM sites
  WHERE list_contains(blocked, 'GPTBot') GROUP BY host, port, requested)
GROUP BY first_blocked
ORDER BY first_blocked;

-- How many files have a block managed by a delivery network, and do these sites block AI crawlers more often?
-- Definition: full, of GPTBot.
-- Over: sites with rules, by network.
-- Caveat: the block is recognised by its comment lines, and stays when a site moves to another network.
SELECT coalesce(cdn, 'none') AS cdn, managed_block, count(*) AS sites,
  count(*) FILTER (list_contains(blocked, 'GPTBot')) AS blocking, blocking / count(*) AS share
FROM sites
WHERE scan_date = latest() AND finding = 'rules'
GROUP BY ALL
ORDER BY cdn, managed_block;

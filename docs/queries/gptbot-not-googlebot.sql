-- How many sites block GPTBot and let Googlebot in: no AI training, but search?
-- Definition: full, by name or by `*`.
-- Over: sites with rules.
-- Caveat: Googlebot may be restricted on these sites, only not blocked; list_contains(partial, 'Googlebot') says so.
SELECT count(*) AS sites, count(*) FILTER (list_contains(blocked, 'GPTBot')) AS gptbot,
  count(*) FILTER (list_contains(blocked, 'Googlebot')) AS googlebot,
  count(*) FILTER (list_contains(blocked, 'GPTBot') AND NOT list_contains(blocked, 'Googlebot')) AS only_gptbot,
  only_gptbot / nullif(count(*), 0) AS share
FROM sites
WHERE scan_date = latest() AND access = 'conditional';

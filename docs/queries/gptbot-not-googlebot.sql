-- How many sites block GPTBot but not Googlebot?
-- Definition: full, by name or by `*`.
-- Over: sites with rules.
-- Caveat: Googlebot may still be partly denied: list_contains(partial, 'Googlebot').
SELECT count(*) AS sites, count(*) FILTER (list_contains(blocked, 'GPTBot')) AS gptbot,
  count(*) FILTER (list_contains(blocked, 'Googlebot')) AS googlebot,
  count(*) FILTER (list_contains(blocked, 'GPTBot') AND NOT list_contains(blocked, 'Googlebot')) AS only_gptbot,
  only_gptbot / nullif(count(*), 0) AS share
FROM sites
WHERE scan_date = latest() AND finding = 'rules';

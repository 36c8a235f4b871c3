-- Liu et al., IMC 2025: how many sites disallow AI crawlers by name, fully or in part, over time?
-- Definition: full and any, by the agent's own group ("explicit" in the study).
-- Over: sites with rules on each date.
-- Caveat: the study follows 24 crawlers on 40,455 sites of archived files; replace the category by its list.
SELECT scan_date, any_value(sites) AS sites, count(*) AS naming, count(*) FILTER (fully) AS fully, count(*) FILTER (fully OR partly) AS fully_or_partially,
  fully_or_partially / any_value(sites) AS share
FROM (SELECT scan_date, bool_or(verdict = 'blocked') AS fully, bool_or(verdict = 'partial') AS partly
  FROM verdicts WHERE category = 'ai' AND via = 'own' AND NOT lenient GROUP BY scan_date, scan_id, seq)
JOIN (SELECT scan_date, count(*) AS sites FROM sites WHERE finding = 'rules' GROUP BY scan_date) USING (scan_date)
GROUP BY scan_date
ORDER BY scan_date;

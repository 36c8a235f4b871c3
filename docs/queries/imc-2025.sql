-- Liu et al., IMC 2025: how many sites disallow AI crawlers by name, fully or in part, over time?
-- Definition: full and any, by the agent's own group ("explicit" in the study).
-- Over: sites with rules or no file (404) on every night, as in the study.
-- Caveat: the study follows 24 crawlers on 40,455 sites of archived files, www and apex as one; replace the category by its list. No file is also 410, and a redirect that leads nowhere.
SELECT night AS scan_date, sum(n)::BIGINT AS sites, sum(n) FILTER (fully OR partly OR allowing)::BIGINT AS naming, sum(n) FILTER (fully)::BIGINT AS fully,
  sum(n) FILTER (fully OR partly)::BIGINT AS fully_or_partially, fully_or_partially / sites AS share
FROM nights JOIN (SELECT valid_from, valid_to, fully, partly, allowing, count(*) AS n
  FROM history JOIN (SELECT policy_id, list_has_any(own_blocked, ai) AS fully, list_has_any(own_partial, ai) AS partly, list_has_any(own_allowed, ai) AS allowing
    FROM history_policies, (SELECT list(token) AS ai FROM tokens WHERE category = 'ai')) USING (policy_id)
  WHERE site IN (SELECT site FROM history WHERE policy_id IN (SELECT policy_id FROM history_policies WHERE class IN ('rules', 'none'))
    GROUP BY site HAVING sum(observations) = (SELECT count(*) FROM nights))
  GROUP BY ALL) ON night BETWEEN valid_from AND valid_to
GROUP BY night
ORDER BY night;

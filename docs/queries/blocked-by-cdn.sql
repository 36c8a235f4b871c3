-- Do sites behind some delivery networks block a crawler more often than others?
-- Definition: all six in site_tokens; any token.
-- Over: sites with rules, by the network that answered; sites_answered, rfc_effective: sites that answered with a status.
-- Caveat: networks are recognised by header fields; a hidden one counts as none.
SELECT coalesce(cdn, 'none') AS cdn, count(*) FILTER (rules) AS sites, count(*) FILTER (answered) AS sites_answered,
  count(*) FILTER (mention) AS mention, count(*) FILTER (explicit_root) AS explicit_root, count(*) FILTER ("full") AS "full",
  count(*) FILTER ("any") AS "any", count(*) FILTER (dpi_all) AS dpi_all, count(*) FILTER (rfc_effective) AS rfc_effective,
  count(*) FILTER ("full") / nullif(count(*) FILTER (rules), 0) AS share_full
FROM site_tokens
WHERE scan_date = latest() AND token = 'GPTBot'
GROUP BY ALL
ORDER BY sites DESC, cdn;

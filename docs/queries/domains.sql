-- Which share of domains blocks the token, and how often do the sites of one domain disagree?
-- Definition: full, of the domain's apex, else of www, else of its site with the best rank.
-- Over: domains whose site has rules; listed, of_several_sites, disagree: all sites.
-- Caveat: subdomains of a company's suffix (me.github.io) are domains of their own; SET VARIABLE bulkscan_private_suffixes = 'fold' folds them.
SELECT 'GPTBot' AS token, count(*) FILTER (finding = 'rules' AND list_contains(blocked, 'GPTBot')) AS blocking,
  count(*) FILTER (finding = 'rules') AS "of", blocking / nullif("of", 0) AS share,
  count(*) AS listed, count(*) FILTER (folded > 1) AS of_several_sites, count(*) FILTER (disagree) AS disagree
FROM domains WHERE scan_date = latest();

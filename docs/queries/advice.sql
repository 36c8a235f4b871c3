-- What might sites change: how many get each advice, and which is one of them?
-- Definition: none; see docs/CHECKS.md.
-- Over: sites that answered with a status.
-- Caveat: a site may get several.
SELECT id AS advice, count(*) AS sites,
  sites / (SELECT count(*) FROM sites WHERE scan_date = latest() AND status IS NOT NULL) AS share,
  min(origin) AS example
FROM (SELECT unnest(advice) AS id, origin FROM sites WHERE scan_date = latest())
GROUP BY id
ORDER BY sites DESC, id;

-- The Web Almanac's SEO chapter (HTTP Archive): how many sites have the file, and with which status?
-- Definition: none. Published for 2025: 84.9 % status 200, 13.3 % 404, 0.1 % above 500 KiB.
-- Over: sites that answered with a status, as the Almanac has only pages that loaded.
-- Caveat: its sites are those of the Chrome UX Report, asked for each page's origin; bulkscan's are the list's.
SELECT count(*) AS sites_answered, count(*) FILTER (status = 200) / count(*) AS status_200, count(*) FILTER (status = 404) / count(*) AS status_404,
  count(*) FILTER (status BETWEEN 400 AND 499 AND status <> 404) / count(*) AS other_4xx, count(*) FILTER (status >= 500) / count(*) AS status_5xx,
  count(*) FILTER (status = 200 AND body_bytes = 0) / count(*) AS empty, count(*) FILTER (truncated OR body_bytes > 512000) / count(*) AS above_500_kib
FROM sites
WHERE scan_date = latest() AND status IS NOT NULL
HAVING count(*) > 0;

-- Which licences do files name (RSL)?
-- Definition: none; the first License record that is an absolute URL.
-- Over: sites with rules.
-- Caveat: a file may name several; evidence has all, kind = 'license'.
SELECT url_host(license) AS license_host, count(*) AS sites, count(DISTINCT license) AS licenses, min(license) AS example
FROM sites
WHERE scan_date = latest() AND finding = 'rules' AND license IS NOT NULL
GROUP BY license_host
ORDER BY sites DESC, license_host
LIMIT 100;

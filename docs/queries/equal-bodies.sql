-- Which files are the same on many sites, to the byte?
-- Definition: none.
-- Over: sites with a body; a cluster has at least two sites.
-- Caveat: clusters of parked domains and of site builders look alike; bodies has the file, by body_hash.
SELECT body_hash, count(*) AS sites, any_value(body_bytes) AS bytes, min(host) AS example, count(DISTINCT registrable_domain) AS domains
FROM sites
WHERE scan_date = latest() AND body_hash <> 0
GROUP BY body_hash
HAVING count(*) > 1
ORDER BY sites DESC, body_hash
LIMIT 100;

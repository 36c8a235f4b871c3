-- Which agents do sites give a Crawl-delay, and how long?
-- Definition: none; the delay of the agent's own group, or of `*`.
-- Over: sites with rules whose group for the agent has one; seconds.
-- Caveat: Google ignores the record; Bing and others read it differently.
SELECT token, count(*) AS sites, min(crawl_delay) AS least, quantile_disc(crawl_delay, 0.5) AS median, quantile_disc(crawl_delay, 0.9) AS p90,
  max(crawl_delay) AS most
FROM verdicts SEMI JOIN (FROM sites WHERE scan_date = latest() AND finding = 'rules') USING (scan_id, seq)
WHERE scan_date = latest() AND via IN ('own', 'star') AND NOT lenient AND crawl_delay IS NOT NULL
GROUP BY token
ORDER BY sites DESC, token
LIMIT 100;

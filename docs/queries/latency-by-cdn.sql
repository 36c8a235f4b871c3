-- How fast do delivery networks answer?
-- Definition: none; milliseconds to the first byte of the last response, and of all exchanges.
-- Over: sites that answered with a status. Percentiles are values that occur.
-- Caveat: as seen by the scan's machine, without waits for rates.
SELECT coalesce(cdn, 'none') AS cdn, count(*) AS sites,
  quantile_disc(ttfb_ms, 0.5) AS ttfb_p50, quantile_disc(ttfb_ms, 0.9) AS ttfb_p90, quantile_disc(ttfb_ms, 0.99) AS ttfb_p99,
  quantile_disc(total_ms, 0.5) AS total_p50, quantile_disc(total_ms, 0.99) AS total_p99
FROM sites
WHERE scan_date = latest() AND status IS NOT NULL
GROUP BY ALL
ORDER BY sites DESC, cdn;

-- How are the sizes of files and the times of answers distributed? (from is in the bin, to is not)
-- Definition: none; bins of a doubling for body_bytes, of half a doubling for total_ms.
-- Over: body_bytes: sites that answered with status 200 and a whole answer, which is not empty; total_ms: sites that answered with a status.
-- Caveat: files are cut at 500 KiB, or --max-body. Times are as seen by the scan's machine, without waits for rates.
SELECT kind, pow(2, bin / bins) AS "from", pow(2, (bin + 1) / bins) AS "to", count(*) AS sites
FROM (SELECT kind, bins, floor(bins * log2(value)) AS bin
  FROM (SELECT 'body_bytes' AS kind, 1 AS bins, CAST(body_bytes AS DOUBLE) AS value FROM sites
      WHERE scan_date = latest() AND outcome = 'answered' AND status = 200 AND body_bytes > 0
    UNION ALL SELECT 'total_ms', 2, CAST(total_ms AS DOUBLE) FROM sites WHERE scan_date = latest() AND status IS NOT NULL AND total_ms > 0))
GROUP BY kind, bins, bin
ORDER BY kind, bin;

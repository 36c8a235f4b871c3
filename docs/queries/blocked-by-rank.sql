-- Do popular sites block AI crawlers more often than others?
-- Definition: all six, one row each.
-- Over: sites with rules among the first 1000, 10000, … of the list (cumulative); rfc_effective: sites that answered with a status.
-- Caveat: sites without a rank are in no segment.
SELECT token, definition, CAST(segment_value AS BIGINT) AS ranks_to, blocking, "of", share
FROM token_shares
WHERE scan_date = latest() AND category = 'ai' AND segment_kind = 'rank'
ORDER BY token, definition, ranks_to;

-- Do popular sites block AI crawlers more often than others?
-- Definition: full; replace it by another.
-- Over: sites with rules among the first 1000, 10000, … of the list (cumulative).
-- Caveat: sites without a rank are in no segment.
SELECT token, CAST(segment_value AS BIGINT) AS ranks_to, blocking, "of", share
FROM token_shares
WHERE scan_date = latest() AND category = 'ai' AND segment_kind = 'rank' AND definition = 'full'
ORDER BY token, ranks_to;

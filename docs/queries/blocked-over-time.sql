-- How does the share of sites that block AI crawlers change from scan to scan?
-- Definition: all six, one row each.
-- Over: sites with rules on that date; rfc_effective: sites that answered with a status.
-- Caveat: dates compare only if their lists do. transitions.sql shows which sites changed.
SELECT token, definition, scan_date, blocking, "of", share,
  share - lag(share) OVER (PARTITION BY token, definition ORDER BY scan_date) AS change
FROM token_shares
WHERE category = 'ai' AND segment_kind = 'all'
ORDER BY token, definition, scan_date;

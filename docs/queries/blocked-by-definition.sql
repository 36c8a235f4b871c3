-- What share of sites block each token, under each of the six definitions?
-- Definition: all six, one row each.
-- Over: sites with rules (finding rules); rfc_effective: sites that answered with a status.
-- Caveat: tokens that are not product tokens, such as MJ12bot, cannot be named and count by `*` alone.
SELECT token, operator, purpose, definition, blocking, "of", share
FROM token_shares
WHERE scan_date = latest() AND known AND segment_kind = 'all'
ORDER BY token, definition;

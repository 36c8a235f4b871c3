-- Which kinds of sites, by the labels of the list, block AI crawlers most?
-- Definition: full; put another in its place.
-- Over: sites with rules of each label.
-- Caveat: there are no such segments where the list has more than a thousand labels; group sites by label then.
SELECT segment_value AS label, token, blocking, "of", share
FROM token_shares
WHERE scan_date = latest() AND category = 'ai' AND segment_kind = 'label' AND definition = 'full'
ORDER BY token, label;

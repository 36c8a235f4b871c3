-- Which kinds of sites, by the list's labels, block AI crawlers most?
-- Definition: full; replace it by another.
-- Over: sites with rules of each label.
-- Caveat: every label has its rows; one of fewer than 30 sites makes no headline. A list with more than a thousand labels has no such segments; group sites by label then.
SELECT segment_value AS label, token, blocking, "of", share
FROM token_shares
WHERE scan_date = latest() AND category = 'ai' AND segment_kind = 'label' AND definition = 'full'
ORDER BY token, label;

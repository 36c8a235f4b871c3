-- The Data Provenance Initiative's "Consent in Crisis": how many sites deny training crawlers everything, over time?
-- Definition: dpi_all.
-- Over: sites with rules on each date.
-- Caveat: the study weighs sites by their tokens in a corpus, and takes monthly snapshots of an archive.
SELECT scan_date, token, operator, blocking, "of", share
FROM token_shares
WHERE segment_kind = 'all' AND definition = 'dpi_all' AND category = 'ai' AND purpose = 'training'
ORDER BY scan_date, share DESC, token;

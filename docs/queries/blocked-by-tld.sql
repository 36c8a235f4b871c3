-- Under which top-level domains are AI crawlers blocked most?
-- Definition: full; replace it by another.
-- Over: sites with rules of each public suffix (com, co.uk).
-- Caveat: suffixes with fewer than 30 sites with rules (SET VARIABLE bulkscan_least_group = N), and hosts without a suffix, are left out.
SELECT segment_value AS tld, token, blocking, "of", share
FROM token_shares
WHERE scan_date = latest() AND token IN ('GPTBot', 'ClaudeBot', 'CCBot', 'Google-Extended')
  AND segment_kind = 'tld' AND definition = 'full' AND "of" >= coalesce(getvariable('bulkscan_least_group'), 30)
ORDER BY token, share DESC, tld;

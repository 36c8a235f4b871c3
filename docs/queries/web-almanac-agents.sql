-- The Web Almanac's table of user agents: which AI crawlers are named, by popularity of the site?
-- Definition: mention. Published for 2025: GPTBot is named by 20.9 % of the first thousand, and by 3.6 % of the first million.
-- Over: sites with rules of each rank segment (cumulative); NULL is all sites.
-- Caveat: the Almanac compares whole user-agent values; its denominator is sites with a file.
SELECT token, CASE segment_kind WHEN 'rank' THEN CAST(segment_value AS BIGINT) END AS ranks_to, blocking AS sites, "of", share
FROM token_shares
WHERE scan_date = latest() AND category = 'ai' AND segment_kind IN ('all', 'rank') AND definition = 'mention'
ORDER BY token, ranks_to NULLS LAST;

-- When did sites begin to block a crawler?
-- Definition: full.
-- Over: sites that were ever seen to block it; their first time counts.
-- Caveat: they began after the last night that showed rules or none; left, unread and unknown may have begun long before.
SELECT valid_from AS first_blocked, censoring, count(*) AS sites, CAST(sum(count(*)) OVER (ORDER BY valid_from, censoring) AS BIGINT) AS so_far
FROM first_blocked('GPTBot')
GROUP BY valid_from, censoring
ORDER BY valid_from, censoring;

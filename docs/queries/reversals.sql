-- How many sites took back that they block a crawler, or that they do not?
-- Definition: full.
-- Over: all sites that changed twice or more: pairs of successive changes, both seen by the same observer.
-- Caveat: a change lies between two observations, so that nights is the longest possible time between both; short ones are missed.
SELECT change, count(*) AS reversals, count(DISTINCT site) AS sites, median(reversed_by - previous_last) AS nights
FROM reversals('GPTBot')
GROUP BY change
ORDER BY change;

-- Of the sites that block a crawler today, how many did so by each earlier night?
-- Definition: full.
-- Over: sites seen to block it on the last night.
-- Caveat: by_then are known to have begun by that night, maybe has also those that may have; sites that gave it up are in neither.
SELECT night, by_then, maybe, "of", share_low, share_high
FROM survival('GPTBot')
ORDER BY night;

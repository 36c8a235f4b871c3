-- Which sites began or ceased to block a crawler, and between which nights?
-- Definition: full.
-- Over: all sites whose rules changed so, seen before and after by the same observer: a row a change, over all nights.
-- Caveat: the change lies after last_before and not after first_after; in between nobody saw rules of the site.
SELECT change, host, port, requested, former.valid_to AS last_before, spell.valid_from AS first_after
FROM token_spells('GPTBot') AS spell
ASOF JOIN (SELECT site, valid_from, valid_to FROM token_history('GPTBot') WHERE class = 'rules') AS former
  ON spell.site = former.site AND spell.valid_from > former.valid_from
WHERE change IS NOT NULL
ORDER BY first_after DESC, host, port, requested;

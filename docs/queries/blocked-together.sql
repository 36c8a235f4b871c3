-- Which AI tokens are blocked together? (one row per pair; a token with itself: sites that block it)
-- Definition: full, by name or by `*`.
-- Over: sites with rules; share is of those that block the first.
-- Caveat: sites that block all crawlers are in every pair. Pairs that no site blocks have no row.
SELECT token, other, sites, sites / max(sites) OVER (PARTITION BY token) AS share
FROM (SELECT token, other, CAST(sum(sites) AS BIGINT) AS sites
  FROM (SELECT token, unnest(ai) AS other, sites FROM (SELECT ai, unnest(ai) AS token, sites
    FROM (SELECT list_intersect(blocked_sets.tokens, known) AS ai, sites
      FROM blocked_sets, (SELECT list(token) AS known FROM tokens WHERE category = 'ai') WHERE scan_date = latest())))
  GROUP BY ALL)
ORDER BY token, other;

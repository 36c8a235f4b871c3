-- needs: sites
-- The complete scans of the dataset, with their dates, observers (who asked, and how) and numbers of sites. chosen says which
-- of them the other views have: those of one observer.
CREATE OR REPLACE VIEW scans AS
SELECT scan_id, scan_date, observer, coalesce(observer = getvariable('bulkscan_observer'), true) AS chosen,
  CAST(sum(rows) AS BIGINT) AS sites, count(*) AS parts, any_value(list_id) AS list_id, any_value(started_at) AS started_at, any_value(registry_version) AS registry_version
FROM bulkscan_files WHERE "table" = 'sites' GROUP BY scan_id, scan_date, observer;

-- needs: sites
-- The date for analyses, as in WHERE scan_date = latest(): the newest date of the chosen observer when this file was read. To
-- use another one: SET VARIABLE bulkscan_date = DATE '2026-11-21'. Several lists of one date are counted together.
SET VARIABLE bulkscan_date = getvariable('bulkscan_newest').scan_date;
CREATE OR REPLACE MACRO latest() AS {the latest date};

-- needs: sites
-- The segment of a rank: 1000 for the first thousand, 10000 for the other ranks up to ten thousand, and so on. NULL has no segment.
CREATE OR REPLACE MACRO rank_bucket(rank) AS CASE WHEN rank > 0 THEN CAST(greatest(1000, pow(10, length(CAST(rank - 1 AS VARCHAR)))) AS BIGINT) END;

-- needs: sites
-- The host of an absolute URL or origin, in lower case.
CREATE OR REPLACE MACRO url_host(url) AS lower(regexp_extract(url, '(?i)^[a-z]+://(?:[^/\\?#]*@)?(\[[^\]]*\]|[^/\\:?#]*)', 1));

-- needs: token_stats
-- The share of sites that block a token, by each of the six definitions and in each segment of token_stats: one row for
-- each date, token, segment and definition. "of" is the definition's denominator: sites_answered for rfc_effective, else sites_rules.
CREATE OR REPLACE VIEW token_shares AS
SELECT scan_date, token, known, category, operator, purpose, segment_kind, segment_value, definition.name AS definition,
  definition.blocking AS blocking, definition."of" AS "of", definition.blocking / nullif(definition."of", 0) AS share
FROM (SELECT scan_date, token, known, any_value(category) AS category, any_value(operator) AS operator, any_value(purpose) AS purpose,
    segment_kind, segment_value,
    unnest([
      {'name': 'mention', 'blocking': CAST(sum(mention) AS BIGINT), 'of': CAST(sum(sites_rules) AS BIGINT)},
      {'name': 'explicit_root', 'blocking': CAST(sum(explicit_root) AS BIGINT), 'of': CAST(sum(sites_rules) AS BIGINT)},
      {'name': 'full', 'blocking': CAST(sum("full") AS BIGINT), 'of': CAST(sum(sites_rules) AS BIGINT)},
      {'name': 'any', 'blocking': CAST(sum("any") AS BIGINT), 'of': CAST(sum(sites_rules) AS BIGINT)},
      {'name': 'dpi_all', 'blocking': CAST(sum(dpi_all) AS BIGINT), 'of': CAST(sum(sites_rules) AS BIGINT)},
      {'name': 'rfc_effective', 'blocking': CAST(sum(rfc_effective) AS BIGINT), 'of': CAST(sum(sites_answered) AS BIGINT)}]) AS definition
  FROM token_stats GROUP BY scan_date, token, known, segment_kind, segment_value);

-- needs: sites
-- Until when a crawler may use a good answer (access conditional or full_allow): 24 hours, which max-age may shorten.
CREATE OR REPLACE MACRO fresh_until(fetched_at, cache_control) AS
  fetched_at + to_seconds(least(86400, coalesce(TRY_CAST(regexp_extract(lower(cache_control), '(?:^|[, ])max-age *= *"?([0-9]+)', 1) AS BIGINT), 86400)));

-- needs: sites
-- What a crawler that keeps files had to do on a date: the sites of that night, each with its access, the answer that decides
-- (as_of), and why. fresh: the answer of the night, or a failure without anything to go by. stale: the night failed, and the copy
-- (the last good answer) is at most 30 days old. expired: the copy is older, or there is none and the failures have lasted more
-- than 30 days. The copy is kept all the same, and only without one everything is allowed: Google's specification of 2021.
-- access_copy_dropped is the other reading: after 30 days of failures the copy is dropped, and everything is allowed. These 30
-- days begin with the copy, but at most 24 hours before the first failure: nights without a request say nothing.
CREATE OR REPLACE MACRO access_as_crawled(date) AS TABLE
WITH rows_of AS NOT MATERIALIZED (SELECT scan_date, scan_id, seq, host, port, requested, coalesce(epoch_ms(fetched_at), epoch_ms(CAST(scan_date AS TIMESTAMP))) AS asked, access, star_verdict, named, blocked, partial
  FROM sites WHERE access <> 'unknown' AND scan_date <= CAST(date AS DATE)),
tonight AS (SELECT * FROM rows_of WHERE scan_date = CAST(date AS DATE)
  QUALIFY row_number() OVER (PARTITION BY host, port, requested ORDER BY access = 'full_disallow', asked DESC, seq DESC) = 1),
-- All nights are read, but not their lists: these are read on the nights of the copies.
failed AS MATERIALIZED (SELECT host, port, requested, max(asked) FILTER (access <> 'full_disallow') AS copied,
    unnest(arg_max({'scan_date': scan_date, 'scan_id': scan_id, 'seq': seq}, asked) FILTER (access <> 'full_disallow')),
    list({'asked': asked, 'scan_date': scan_date}) FILTER (access = 'full_disallow') AS failures
  FROM rows_of SEMI JOIN (FROM tonight WHERE access = 'full_disallow') USING (host, port, requested) GROUP BY host, port, requested),
copies AS (SELECT scan_date, scan_id, seq, {'access': access, 'star_verdict': star_verdict, 'named': named, 'blocked': blocked, 'partial': partial} AS copy
  FROM rows_of SEMI JOIN failed USING (scan_date, scan_id, seq) WHERE scan_date IN (SELECT DISTINCT scan_date FROM failed)),
sourced AS (SELECT t.*, copy, f.scan_date AS as_of, copied IS NOT NULL AS kept, since.scan_date AS since, (t.asked - since.asked) / 86400000 AS days,
    CASE WHEN t.access <> 'full_disallow' THEN 'fresh' WHEN (t.asked - copied) / 86400000 <= 30 THEN 'stale' WHEN kept OR days > 30 THEN 'expired' ELSE 'fresh' END AS source
  FROM tonight AS t LEFT JOIN (SELECT *, list_min(list_filter(failures, lambda failure: copied IS NULL OR failure.asked > copied)) AS since
    FROM failed LEFT JOIN copies USING (scan_date, scan_id, seq)) AS f USING (host, port, requested))
SELECT host, port, requested, CASE WHEN kept THEN copy.access WHEN source = 'expired' THEN 'full_allow' ELSE t.access END AS access,
  CASE WHEN source = 'expired' AND days > 29 THEN 'full_allow' WHEN kept THEN copy.access ELSE t.access END AS access_copy_dropped,
  source, CASE WHEN kept THEN as_of WHEN source = 'fresh' THEN scan_date END AS as_of, since AS failing_since,
  CASE WHEN kept THEN copy.star_verdict WHEN source = 'expired' THEN 'allowed' ELSE t.star_verdict END AS star_verdict,
  CASE WHEN kept THEN copy.named WHEN source = 'expired' THEN [] ELSE t.named END AS named,
  CASE WHEN kept THEN copy.blocked WHEN source = 'expired' THEN [] ELSE t.blocked END AS blocked,
  CASE WHEN kept THEN copy.partial WHEN source = 'expired' THEN [] ELSE t.partial END AS partial
FROM sourced AS t;

-- needs: sites
-- Names of tokens in lower case: registries may spell them otherwise.
CREATE OR REPLACE MACRO bulkscan_lower(names) AS list_transform(names, lambda name: lower(name));

-- needs: sites
-- The token whose group decides for a token, by the tokens that have one of their own: itself, else the first of its fallbacks that has
-- one. NULL: the group of `*` decides, if the token heeds that. Most tokens have no fallback, and an empty list costs less than a search in it.
CREATE OR REPLACE MACRO token_group(token, fallback, own) AS
  CASE WHEN list_contains(own, token) THEN token WHEN len(fallback) > 0 THEN list_filter(fallback, lambda name: list_contains(own, name))[1] END;

-- needs: sites
-- Whether a token has a verdict, by what token_group says, the tokens with that verdict by groups of their own, and the verdict of `*`.
CREATE OR REPLACE MACRO has_verdict(verdict, named, own, heeds_star, star_verdict) AS
  CASE WHEN named IS NULL THEN heeds_star AND star_verdict = verdict ELSE list_contains(own, named) END;

-- needs: policies
-- What each policy of a date makes of each token of the registry: via says whose group decides (own, fallback, star, none), and the definitions of
-- docs/definitions.md are columns of truth. rfc_effective is full here; it also asks the status of the site.
CREATE OR REPLACE VIEW policy_tokens AS
SELECT scan_date, policy_id, token, category, operator, purpose,
  CASE WHEN named = name THEN 'own' WHEN named IS NOT NULL THEN 'fallback' WHEN star AND heeds_star THEN 'star' ELSE 'none' END AS via,
  via = 'own' AS mention,
  via = 'own' AND list_contains(own_root_denied, named) AS explicit_root,
  has_verdict('blocked', named, own_blocked, heeds_star, star_verdict) AS "full",
  has_verdict('partial', named, own_partial, heeds_star, star_verdict) AS partial,
  "full" OR partial AS "any",
  CASE WHEN named IS NULL THEN star_dpi_all ELSE list_contains(own_dpi_all, named) END AS dpi_all -- also of `*` where the token ignores it
FROM (SELECT *, token_group(name, fallbacks, own) AS named
  FROM (SELECT *, lower(token) AS name, bulkscan_lower(fallback) AS fallbacks FROM tokens), (SELECT scan_date, policy_id, star, star_verdict, star_dpi_all, bulkscan_lower(own) AS own, bulkscan_lower(own_blocked) AS own_blocked,
    bulkscan_lower(own_partial) AS own_partial, bulkscan_lower(own_root_denied) AS own_root_denied, bulkscan_lower(own_dpi_all) AS own_dpi_all FROM bulkscan_policies));

-- needs: sites, policies
-- The number of sites with rules of each date that have a policy.
CREATE OR REPLACE VIEW policy_sites AS
SELECT scan_date, policy_id, count(*) AS sites FROM sites WHERE finding = 'rules' GROUP BY ALL;

-- needs: sites, policies
-- One row per registrable domain of a date, observer and list: its apex if that is on the list, else www, else the site of the best rank. folded is the
-- number of its sites, with_rules of those with rules; disagree says that these do not all block the same. A subdomain of a
-- company's suffix, such as me.github.io, is a domain of its own; after SET VARIABLE bulkscan_private_suffixes = 'fold' all of
-- github.io are one.
SET VARIABLE bulkscan_units = (SELECT map(list(scan_id), list(unit)) FROM (SELECT scan_id, min(scan_id) OVER (PARTITION BY scan_date, observer, list_id) AS unit FROM scans) WHERE unit <> scan_id);
CREATE OR REPLACE VIEW domains AS
SELECT domain, folded, with_rules, disagree, * EXCLUDE (domain, folded, with_rules, disagree, policy, unit)
FROM (SELECT *, count(*) OVER w AS folded, count(*) FILTER (finding = 'rules') OVER w AS with_rules,
    coalesce(min(policy) FILTER (finding = 'rules') OVER w <> max(policy) FILTER (finding = 'rules') OVER w, false) AS disagree
  FROM (SELECT sites.*, xor(hash(star_verdict), verdicts) AS policy, coalesce(CASE WHEN getvariable('bulkscan_private_suffixes') = 'fold' THEN icann_domain END, registrable_domain, host) AS domain, coalesce(getvariable('bulkscan_units')[scan_id], scan_id) AS unit
    -- The hash is of a text: DuckDB's hashes of two lists can be equal where one is empty.
    FROM sites LEFT JOIN (SELECT scan_date, policy_id, hash(coalesce(string_agg(CASE WHEN "full" THEN '+' ELSE '-' END || token, ',' ORDER BY token) FILTER ("any"), '')) AS verdicts
      FROM policy_tokens GROUP BY ALL) USING (scan_date, policy_id))
  WINDOW w AS (PARTITION BY scan_date, unit, domain))
QUALIFY row_number() OVER (PARTITION BY scan_date, unit, domain
  ORDER BY CASE host WHEN domain THEN 0 WHEN 'www.' || domain THEN 1 ELSE 2 END, rank NULLS LAST, host, seq, scan_id) = 1;

-- needs: sites, policies
-- The distinct sets of tokens that sites block, and the number of sites that block exactly this set. Queries on pairs or
-- numbers of tokens then read some thousand sets instead of a million sites. Sites without rules are left out.
CREATE OR REPLACE VIEW blocked_sets AS
SELECT scan_date, tokens, CAST(sum(sites) AS BIGINT) AS sites
FROM policy_sites JOIN (SELECT scan_date, policy_id, coalesce(list(token ORDER BY token) FILTER ("full"), []) AS tokens FROM policy_tokens GROUP BY ALL) USING (scan_date, policy_id) GROUP BY ALL;

-- needs: sites, policies
-- A row for each site and token of the registry, with every definition as a boolean column; rules and answered say
-- whether the site is in the denominator. A million sites make 200 million rows: name the token, as in WHERE token = 'GPTBot'.
CREATE OR REPLACE VIEW site_tokens AS
SELECT scan_date, scan_id, seq, host, port, requested, rank, tld, label, cdn, status, access, finding, t.token, t.category, t.operator, t.purpose,
  finding = 'rules' AS rules, status IS NOT NULL AS answered,
  rules AND p.mention AS mention, rules AND p.explicit_root AS explicit_root, rules AND p."full" AS "full", rules AND p.partial AS partial,
  rules AND p."any" AS "any", rules AND p.dpi_all AS dpi_all, answered AND (access = 'full_disallow' OR coalesce(p."full", false)) AS rfc_effective
FROM (sites CROSS JOIN tokens AS t) LEFT JOIN policy_tokens AS p USING (scan_date, policy_id, token);

-- needs: sites, policies
-- A row for each site and token of the registry that it blocks: the definition "full", with fallbacks and `*` expanded. via
-- says whose rules block it: own, fallback or star.
CREATE OR REPLACE VIEW site_blocks AS
SELECT scan_date, scan_id, seq, host, port, requested, rank, tld, label, cdn, token, category, operator, purpose, via
FROM sites JOIN policy_tokens AS p USING (scan_date, policy_id) WHERE finding = 'rules' AND "full";

-- needs: policies
-- The tokens of each operator, purpose and category.
CREATE OR REPLACE VIEW token_groups AS
SELECT 'operator' AS kind, operator AS value, token FROM tokens UNION ALL SELECT 'purpose', purpose, token FROM tokens UNION ALL SELECT 'category', category, token FROM tokens;

-- needs: sites, policies
-- The verdict of sites with rules on an operator, a purpose or a category as a whole: the strictest verdict of its tokens.
-- One row for each date, kind, value and verdict, with the number of sites.
CREATE OR REPLACE VIEW rollups AS
SELECT scan_date, kind, value, CASE WHEN "full" THEN 'blocked' WHEN partial THEN 'partial' ELSE 'allowed' END AS verdict, CAST(sum(sites) AS BIGINT) AS sites
FROM policy_sites JOIN (SELECT scan_date, policy_id, kind, value, bool_or("full") AS "full", bool_or(partial) AS partial FROM policy_tokens JOIN token_groups USING (token) GROUP BY ALL) USING (scan_date, policy_id)
GROUP BY ALL;

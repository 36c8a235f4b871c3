-- needs: sites
-- The complete scans of the dataset, with their dates, observers (who asked, and how) and numbers of sites. chosen says which
-- of them the other views have: those of one observer. has_policies says that sites has policy_id: scans of schema version 1 lack it.
CREATE OR REPLACE VIEW scans AS
SELECT scan_id, scan_date, observer, coalesce(observer = getvariable('bulkscan_observer'), true) AS chosen,
  CAST(sum(rows) AS BIGINT) AS sites, count(*) AS parts, any_value(list_id) AS list_id, any_value(started_at) AS started_at, any_value(registry_version) AS registry_version,
  min(schema_version) > 1 AS has_policies
FROM bulkscan_files WHERE "table" = 'sites' GROUP BY scan_id, scan_date, observer;

-- needs: sites
-- The date for analyses, as in WHERE scan_date = latest(): the newest date of the chosen observer when this file was read. To
-- use another one: SET VARIABLE bulkscan_date = DATE '2026-11-21'. Several scans of one date by one observer are counted together.
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
-- A row for each site and token of the registry that it blocks: the definition "full", with fallbacks and `*` expanded. via
-- says whose rules block it: own, fallback or star.
CREATE OR REPLACE VIEW site_blocks AS
SELECT s.* EXCLUDE (named), t.category, t.operator, t.purpose,
  CASE WHEN list_contains(s.named, s.token) THEN 'own' WHEN list_has_any(s.named, t.fallback) THEN 'fallback' ELSE 'star' END AS via
FROM (SELECT scan_date, scan_id, seq, host, port, requested, rank, tld, label, cdn, named, unnest(blocked) AS token FROM sites WHERE finding = 'rules') AS s
JOIN tokens AS t USING (token);

-- needs: sites
-- A row a registrable domain and scan: its apex if that is on the list, else www, else the site of the best rank. folded is the
-- number of its sites, with_rules of those with rules; disagree says that these do not all block the same. A subdomain of a
-- company's suffix, such as me.github.io, is a domain of its own; after SET VARIABLE bulkscan_private_suffixes = 'fold' all of
-- github.io are one.
CREATE OR REPLACE VIEW domains AS
SELECT domain, folded, with_rules, disagree, * EXCLUDE (domain, folded, with_rules, disagree, policy)
FROM (SELECT *, count(*) OVER w AS folded, count(*) FILTER (finding = 'rules') OVER w AS with_rules,
    coalesce(min(policy) FILTER (finding = 'rules') OVER w <> max(policy) FILTER (finding = 'rules') OVER w, false) AS disagree
  -- The hash is of a text: DuckDB's hashes of two lists can be equal where one is empty.
  FROM (SELECT *, hash(concat_ws(';', star_verdict, array_to_string(blocked, ','), array_to_string(partial, ','))) AS policy, coalesce(CASE WHEN getvariable('bulkscan_private_suffixes') = 'fold' THEN icann_domain END, registrable_domain, host) AS domain FROM sites)
  WINDOW w AS (PARTITION BY scan_date, scan_id, domain))
QUALIFY row_number() OVER (PARTITION BY scan_date, scan_id, domain
  ORDER BY CASE host WHEN domain THEN 0 WHEN 'www.' || domain THEN 1 ELSE 2 END, rank NULLS LAST, seq) = 1;

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
-- The distinct sets of tokens that sites block, and the number of sites that block exactly this set. Queries on pairs or
-- numbers of tokens then read some thousand sets instead of a million sites. Sites without rules are left out.
CREATE OR REPLACE VIEW blocked_sets AS
SELECT scan_date, blocked AS tokens, count(*) AS sites FROM sites WHERE finding = 'rules' GROUP BY ALL;

-- needs: sites, verdicts
-- A row for each site and token of the registry, with every definition as a boolean column; rules and answered say
-- whether the site is in the denominator. A million sites make 200 million rows: name the token, as in WHERE token = 'GPTBot'.
CREATE OR REPLACE VIEW site_tokens AS
SELECT s.scan_date, s.scan_id, s.seq, s.host, s.port, s.requested, s.rank, s.tld, s.label, s.cdn, s.status, s.access, s.finding,
  s.token, s.category, s.operator, s.purpose,
  s.finding = 'rules' AS rules, s.status IS NOT NULL AS answered,
  rules AND coalesce(v.via = 'own', false) AS mention,
  rules AND coalesce(v.via = 'own' AND NOT v.root_allowed, false) AS explicit_root,
  rules AND coalesce(v.verdict, star) = 'blocked' AS "full",
  rules AND coalesce(v.verdict, star) = 'partial' AS partial,
  rules AND coalesce(v.verdict, star) <> 'allowed' AS "any",
  rules AND coalesce(v.dpi, wildcard.dpi, '') = 'all' AS dpi_all,
  answered AND (s.access = 'conditional' AND coalesce(v.verdict, star) = 'blocked' OR s.access = 'full_disallow') AS rfc_effective
FROM (SELECT s.*, t.*, CASE WHEN t.heeds_star THEN s.star_verdict ELSE 'allowed' END AS star FROM sites AS s, tokens AS t) AS s
LEFT JOIN (SELECT scan_id, seq, token, via, verdict, root_allowed, dpi FROM verdicts WHERE NOT lenient AND token <> '*') AS v
  ON v.scan_id = s.scan_id AND v.seq = s.seq AND v.token = s.token
LEFT JOIN (SELECT scan_id, seq, dpi FROM verdicts WHERE token = '*' AND dpi = 'all') AS wildcard
  ON wildcard.scan_id = s.scan_id AND wildcard.seq = s.seq;

-- needs: sites, verdicts
-- The tokens of each operator, purpose and category; heeding is the number of those that heed '*'.
CREATE OR REPLACE VIEW token_groups AS
SELECT kind, value, token, heeds_star, count(*) FILTER (heeds_star) OVER (PARTITION BY kind, value) AS heeding
FROM (SELECT token, heeds_star, unnest([{'kind': 'operator', 'value': operator}, {'kind': 'purpose', 'value': purpose},
  {'kind': 'category', 'value': category}], recursive := true) FROM tokens);

-- needs: sites, verdicts
-- The distinct ways in which sites that name registry tokens treat them: one row for each date, verdict of '*', and set of
-- tokens with their verdicts (identified by hashes), with the number of its sites and one example.
CREATE OR REPLACE VIEW named_sets AS
SELECT scan_date, star_verdict, pattern, count(*) AS sites, arg_min(scan_id, seq) AS scan_id, min(seq) AS seq
FROM (SELECT scan_date, scan_id, seq, {'blocked': bit_xor(hash(token)) FILTER (verdict = 'blocked'),
    'partial': bit_xor(hash(token)) FILTER (verdict = 'partial'), 'allowed': bit_xor(hash(token)) FILTER (verdict = 'allowed')} AS pattern
  FROM verdicts WHERE known AND NOT lenient GROUP BY scan_date, scan_id, seq)
JOIN (SELECT scan_date, scan_id, seq, star_verdict FROM sites WHERE len(named) > 0 AND finding = 'rules') USING (scan_date, scan_id, seq)
GROUP BY scan_date, star_verdict, pattern;

-- needs: sites, verdicts
-- The verdict of sites with rules on an operator, a purpose or a category as a whole: the strictest verdict of its tokens.
-- One row for each date, kind, value and verdict, with the number of sites.
CREATE OR REPLACE VIEW rollups AS
SELECT scan_date, kind, value, ['allowed', 'partial', 'blocked'][strictness] AS verdict, CAST(sum(sites) AS BIGINT) AS sites
-- First all sites, as if they named none of the tokens: then the tokens that heed '*' have its verdict.
FROM (SELECT scan_date, kind, value, CASE WHEN heeding > 0 THEN list_position(['allowed', 'partial', 'blocked'], star_verdict) ELSE 1 END AS strictness, sites
  FROM (SELECT scan_date, star_verdict, count(*) AS sites FROM sites WHERE finding = 'rules' GROUP BY ALL),
    (SELECT DISTINCT kind, value, heeding FROM token_groups)
  UNION ALL
  -- Then those that name one, or one's fallback, go from there to where they belong.
  SELECT scan_date, kind, value, unnest([before, after]), unnest([-sites, sites])
  FROM (SELECT scan_date, kind, value, any_value(sites) AS sites, CASE WHEN heeding > 0 THEN any_value(star) ELSE 1 END AS before,
      greatest(max(list_position(['allowed', 'partial', 'blocked'], verdict)), CASE WHEN count(*) FILTER (heeds_star) < heeding THEN any_value(star) ELSE 1 END) AS after
    FROM (SELECT scan_date, scan_id, seq, token, verdict FROM verdicts WHERE known AND NOT lenient)
    JOIN (SELECT *, list_position(['allowed', 'partial', 'blocked'], star_verdict) AS star FROM named_sets) USING (scan_date, scan_id, seq)
    JOIN token_groups USING (token)
    GROUP BY scan_date, scan_id, seq, pattern, kind, value, heeding))
GROUP BY ALL HAVING sum(sites) > 0;

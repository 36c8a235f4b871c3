-- needs: sites
-- The tokens of the registries of which only pruned nights had statistics (docs/nightly.md).
CREATE OR REPLACE MACRO bulkscan_pruned_tokens() AS TABLE
SELECT registry.version AS registry_version, unnest(registry.tokens) AS token FROM (SELECT unnest(from_json({registries of pruned nights}, '[{"version": "VARCHAR", "tokens": ["VARCHAR"]}]')) AS registry);

-- needs: sites
-- The tokens that a registry has, by its version: that of a judge is the first word of the column judge in history. A version
-- that never had statistics is not listed; what its judge says counts then as if it knew every token.
CREATE OR REPLACE VIEW registry_tokens AS
SELECT * FROM bulkscan_pruned_tokens();

-- needs: token_stats
SET VARIABLE bulkscan_registries = (SELECT map(list(regexp_extract(path, 'part-(.*)\.parquet$', 1)), list({'version': registry_version, 'path': path})) FROM (
  SELECT registry_version, min(path) AS path FROM (SELECT unnest(getvariable('bulkscan_kinds'), recursive := true)) WHERE complete AND "table" = 'token_stats' GROUP BY registry_version));
SET VARIABLE bulkscan_registry_files = list_transform(map_values(getvariable('bulkscan_registries')), lambda file: file.path);
CREATE OR REPLACE VIEW registry_tokens AS
SELECT getvariable('bulkscan_registries')[regexp_extract(bulkscan_file, 'part-(.*)\.parquet$', 1)].version AS registry_version, token
FROM read_parquet(coalesce(getvariable('bulkscan_registry_files'), [error('views.sql has to be read again')]), filename = 'bulkscan_file')
WHERE known AND segment_kind = 'all'
UNION SELECT * FROM bulkscan_pruned_tokens();

-- needs: sites
-- What each policy means for a token of the registry. state is blocked (definition full) or open where it has rules, else its class. named is
-- as in token_group.
CREATE OR REPLACE MACRO registry_row(name) AS
  coalesce(list_filter(getvariable('bulkscan_tokens'), lambda t: t.token = name)[1], error('no token of the registry: ' || name));
CREATE OR REPLACE MACRO policy_states(token) AS TABLE
SELECT policy_id, class, list_filter(list_prepend(token, asked.fallback), lambda name: lower(name) = named)[1] AS named,
  CASE WHEN class <> 'rules' THEN class WHEN has_verdict('blocked', named, bulkscan_lower(own_blocked), asked.heeds_star, star_verdict) THEN 'blocked' ELSE 'open' END AS state
FROM (SELECT *, token_group(lower(token), bulkscan_lower(asked.fallback), bulkscan_lower(list_concat(own_blocked, own_partial, own_allowed))) AS named
  FROM (SELECT registry_row(token) AS asked), history_policies);

-- needs: sites
-- The policies that block a token (definition full), by its own group, its fallback's, or `*`.
CREATE OR REPLACE MACRO policies_blocking(token) AS TABLE
SELECT policy_id FROM policy_states(token) WHERE state = 'blocked';

-- needs: sites
-- The registries that lack a token. Where the judge of an episode used one of them, it is not known whether the site blocks the token.
CREATE OR REPLACE MACRO registries_without(name) AS
  (SELECT coalesce(list(v), []) FROM (SELECT r.registry_version AS v FROM registry_tokens AS r GROUP BY v HAVING NOT bool_or(r.token = name)));

-- needs: sites
-- Episodes, with what they mean for a token: state is as in policy_states, or unknown where the registry of the judge lacks the token.
CREATE OR REPLACE MACRO state_by(judge, state, lacking) AS
  CASE WHEN state IN ('blocked', 'open') AND list_contains(lacking, split_part(judge, ' ', 1)) THEN 'unknown' ELSE state END;
CREATE OR REPLACE MACRO token_history(token) AS TABLE
SELECT h.*, p.class, p.named, state_by(h.judge, p.state, lacking) AS state
FROM policy_states(token) AS p JOIN history AS h USING (policy_id), (SELECT registries_without(token) AS lacking);

-- needs: sites
-- The last night of the ledger on or before a date.
CREATE OR REPLACE MACRO night_of(date) AS list_max(list_filter(CAST(string_split(getvariable('bulkscan_nights'), chr(0)) AS DATE[]), lambda night: night <= CAST(date AS DATE)));

-- needs: sites
-- The gaps of a date: the sites of which nothing was learned on the last night on or before it.
CREATE OR REPLACE MACRO gaps_on(date) AS TABLE
SELECT * FROM gaps WHERE first <= night_of(date) AND last >= night_of(date);

-- needs: sites
-- The episodes that hold on a date: the last one of each site that began on or before it.
CREATE OR REPLACE MACRO history_on(date) AS TABLE
SELECT * FROM history ANTI JOIN (SELECT site, previous_last AS valid_to FROM history WHERE valid_from <= night_of(date) AND previous_last IS NOT NULL) USING (site, valid_to)
WHERE valid_from <= night_of(date);

-- needs: sites
-- What each site said on a date: the policy of the episode that holds. night is the last night on or before the date. observed says
-- whether the site was observed on that night, and gap, if not, why; then the policy is that of an earlier night.
CREATE OR REPLACE MACRO policies_at(date) AS TABLE
SELECT night_of(date) AS night, h.site, h.host, h.port, h.requested, g.class IS NULL AS observed, g.class AS gap,
  p.*, h.valid_from, h.previous_last, h.cause, h.observer, h.judge
FROM history_on(date) AS h JOIN history_policies AS p USING (policy_id) LEFT JOIN gaps_on(date) AS g USING (site);

-- needs: sites
-- The classes of answers in the place of a file, as audit.Finding.MayHideRules.
CREATE OR REPLACE MACRO may_hide_rules(class) AS class IN ('refused', 'html');

-- needs: sites
-- What a change to or from the state blocked is called: rules that block begin or cease, or the file with them appears or is removed.
CREATE OR REPLACE MACRO block_change(before, after) AS
  CASE before WHEN 'open' THEN 'began' WHEN 'blocked' THEN CASE after WHEN 'open' THEN 'ceased' ELSE 'removed' END ELSE 'appeared' END;

-- needs: sites
-- Spells: times in which the rules of a site treat a token the same way, blocked or open. Times without rules do not end a spell, unless
-- files is true: then there are spells without a file, too (none, no_rules), and the changes appeared and removed.
-- The site began so after previous_last, the last night that showed rules or that there are none, and not after valid_from. previous_last is
-- null unless censoring is interval: left where the site's first observation was so, unread where only answers that may hide rules came
-- before, and unknown where the judge did not know the token, or judge or observer changed. change says began or ceased (to
-- block) where the spell before is known to be the contrary, by the same observer.
CREATE OR REPLACE MACRO token_spells(token, files := false) AS TABLE
SELECT site, host, port, requested, state, CASE WHEN censoring = 'interval' THEN read END AS previous_last, valid_from, censoring, cause,
  CASE WHEN before <> 'unknown' AND 'blocked' IN (before, state) AND coalesce(broke <= until, true) THEN block_change(before, state) END AS change
FROM (SELECT *, CASE WHEN cause = 'first' THEN 'left' WHEN read IS NULL THEN 'unread' WHEN before = 'unknown' OR broke > read THEN 'unknown' ELSE 'interval' END AS censoring
  -- until is the last night with the state before; broke is when observer or judge last changed.
  FROM (SELECT *, lag(CASE WHEN told THEN state END IGNORE NULLS) OVER w AS before, lag(CASE WHEN told THEN valid_to END IGNORE NULLS) OVER w AS until,
      lag(CASE WHEN NOT may_hide_rules(class) THEN valid_to END IGNORE NULLS) OVER w AS read, max(CASE WHEN cause IN ('observer', 'unknown_judge') THEN valid_from END) OVER w AS broke
    FROM (SELECT *, class = 'rules' OR files AND NOT may_hide_rules(class) AS told FROM token_history(token)) WHERE NOT may_hide_rules(class) OR cause IN ('observer', 'unknown_judge')
    WINDOW w AS (PARTITION BY site ORDER BY valid_from))
  WHERE told AND before IS DISTINCT FROM state)
WHERE state <> 'unknown';

-- needs: sites
-- For each site that ever blocked a token: when it was first seen to do so, with the columns of token_spells.
CREATE OR REPLACE MACRO first_blocked(token) AS TABLE
SELECT * EXCLUDE (state, change) FROM token_spells(token) WHERE state = 'blocked'
QUALIFY row_number() OVER (PARTITION BY site ORDER BY valid_from) = 1;

-- needs: sites
-- Sites that began to block a token and ceased, or the reverse: a row for each pair of successive changes, of which the first lies after
-- previous_last and not after valid_from, and the second after reversed_after and not after reversed_by.
CREATE OR REPLACE MACRO reversals(token) AS TABLE
SELECT site, host, port, requested, change, previous_last, valid_from, cause, reversed_after, reversed_by, reversal_cause
FROM (SELECT *, lead(change) OVER w AS reversal, lead(previous_last) OVER w AS reversed_after, lead(valid_from) OVER w AS reversed_by, lead(cause) OVER w AS reversal_cause
  FROM token_spells(token) WINDOW w AS (PARTITION BY site ORDER BY valid_from))
WHERE change IS NOT NULL AND reversal IS NOT NULL;

-- needs: sites
-- Sites that began or ceased to block a token at least so often.
CREATE OR REPLACE MACRO flapping(token, at_least := 3) AS TABLE
SELECT site, any_value(host) AS host, any_value(port) AS port, any_value(requested) AS requested, count(*) AS changes,
  count(*) FILTER (change = 'began') AS began, count(*) FILTER (change = 'ceased') AS ceased, min(valid_from) AS first_change, max(valid_from) AS last_change
FROM token_spells(token) WHERE change IS NOT NULL GROUP BY site HAVING count(*) >= at_least;

-- needs: sites
-- Of the sites seen to block a token on the last night: how many did so by each night. by_then are known to have begun by then, of those
-- that blocked it ever since; maybe also counts those that may have begun by then.
CREATE OR REPLACE MACRO survival(token) AS TABLE
WITH blocking AS (SELECT site FROM history_on('infinity') AS h JOIN policy_states(token) AS p USING (policy_id) ANTI JOIN gaps_on('infinity') USING (site)
  WHERE state_by(h.judge, p.state, registries_without(token)) = 'blocked'),
spells AS (SELECT previous_last, valid_from, count(*) AS sites
  FROM (SELECT arg_max_null(previous_last, valid_from) AS previous_last, max(valid_from) AS valid_from
    FROM token_spells(token) SEMI JOIN blocking USING (site) WHERE state = 'blocked' GROUP BY site)
  GROUP BY ALL)
SELECT night, CAST(coalesce(sum(sites) FILTER (valid_from <= night), 0) AS BIGINT) AS by_then, CAST(coalesce(sum(sites) FILTER (previous_last IS NULL OR previous_last < night), 0) AS BIGINT) AS maybe,
  CAST(sum(sites) AS BIGINT) AS "of", by_then / "of" AS share_low, maybe / "of" AS share_high
FROM nights, spells GROUP BY night ORDER BY night;

-- needs: sites
-- The share of sites that block a token on each night, of the sites whose rules were seen on that night. unknown is the number of further
-- such sites, whose judge did not know the token. named of the sites have a group of their own for it; by_star is how many block it, and
-- have none for it nor for its fallbacks. With as_last_seen, sites count on the nights for which an archive carried their file forward, too.
CREATE OR REPLACE MACRO blocked_over_time(token, as_last_seen := false) AS TABLE
WITH episodes AS (SELECT site, valid_from, valid_to, class, {'state': state, 'own': named IS NOT DISTINCT FROM token, 'star': state = 'blocked' AND named IS NULL} AS kind FROM token_history(token)),
inside AS (SELECT kind, g.first, g.last, count(*) AS n FROM gaps AS g JOIN episodes AS e ON e.site = g.site AND e.valid_from < g.first AND e.valid_to > g.last WHERE e.class = 'rules' GROUP BY ALL),
carried AS (SELECT kind, g.first, g.last, count(*) AS n FROM (FROM gaps WHERE class = 'carried' AND as_last_seen) AS g ASOF JOIN episodes AS e ON e.site = g.site AND g.first >= e.valid_from WHERE e.class = 'rules' GROUP BY ALL),
changes AS (
  SELECT valid_from AS date, kind, count(*) AS n FROM episodes WHERE class = 'rules' GROUP BY ALL
  UNION ALL SELECT valid_to + 1, kind, -count(*) FROM episodes WHERE class = 'rules' GROUP BY ALL
  UNION ALL SELECT first, kind, -n FROM inside
  UNION ALL SELECT last + 1, kind, n FROM inside
  UNION ALL SELECT first, kind, n FROM carried
  UNION ALL SELECT last + 1, kind, -n FROM carried
  UNION ALL SELECT night, NULL, 0 FROM nights)
SELECT night, blocking, "of", blocking / nullif("of", 0) AS share, unknown, named, by_star
FROM (SELECT DISTINCT date AS night, CAST(coalesce(sum(n) FILTER (kind.state = 'blocked') OVER w, 0) AS BIGINT) AS blocking,
    CAST(coalesce(sum(n) FILTER (kind.state IN ('blocked', 'open')) OVER w, 0) AS BIGINT) AS "of", CAST(coalesce(sum(n) FILTER (kind.state = 'unknown') OVER w, 0) AS BIGINT) AS unknown,
    CAST(coalesce(sum(n) FILTER (kind.own) OVER w, 0) AS BIGINT) AS named, CAST(coalesce(sum(n) FILTER (kind.star) OVER w, 0) AS BIGINT) AS by_star
  FROM changes WINDOW w AS (ORDER BY date)) SEMI JOIN nights USING (night)
ORDER BY night;

-- needs: sites
-- The causes of episodes that follow another one. The last two are no transitions.
CREATE OR REPLACE MACRO transition_causes() AS ['policy', 'managed', 'presence', 'refusal', 'observer', 'unknown_judge'];

-- needs: sites
-- What became of the sites from one date to another, for a token. before and after are blocked, open, unknown, another class of policy, or
-- the class of the gap where the site was not observed that night; absent is a site that was listed later. causes are those of
-- the episodes that began in between. change says began, ceased, appeared, removed, presence or refusal where both dates have an observation, and
-- neither observer nor judge explains the difference. The host is null for a site that was never observed.
CREATE OR REPLACE MACRO transitions(earlier, later, token) AS TABLE
WITH states AS NOT MATERIALIZED (SELECT policy_id, state, registries_without(token) AS lacking FROM policy_states(token)),
-- Most sites have one episode from the earlier date to the later; the others have the first of these after before_them.
between_them AS (SELECT site, arg_min_null(previous_last, valid_from) AS before_them, bit_or(1 << CAST(list_position(transition_causes(), cause) AS INTEGER)) AS causes
  FROM history WHERE valid_from > coalesce(night_of(earlier), '-infinity') AND valid_from <= night_of(later) GROUP BY site),
later_states AS (SELECT site, host, port, requested, state_by(judge, state, lacking) AS state FROM states JOIN history_on(later) USING (policy_id)),
earlier_states AS (SELECT b.site, b.causes, state_by(h.judge, s.state, s.lacking) AS state
  FROM between_them AS b LEFT JOIN history AS h ON h.site = b.site AND h.valid_to = b.before_them LEFT JOIN states AS s USING (policy_id))
SELECT site, host, port, requested, before, after, list_filter(transition_causes(), lambda cause, i: causes >> i & 1 = 1) AS causes,
  CASE WHEN before = after OR causes >> 5 > 0 OR NOT seen THEN NULL
    WHEN before IN ('open', 'none', 'no_rules', 'blocked') AND after IN ('open', 'none', 'no_rules', 'blocked') AND 'blocked' IN (before, after) THEN block_change(before, after)
    WHEN 'unknown' IN (before, after) THEN NULL
    WHEN 'refused' IN (before, after) THEN 'refusal' ELSE 'presence' END AS change
FROM (SELECT site, coalesce(l.host, f.host) AS host, coalesce(l.port, f.port) AS port, coalesce(l.requested, f.requested) AS requested, coalesce(g.class, CASE WHEN e.site IS NULL THEN l.state ELSE e.state END, 'absent') AS before, coalesce(h.class, l.state) AS after, coalesce(causes, 0) AS causes,
    g.class IS NULL AND h.class IS NULL AND before <> 'absent' AS seen
  FROM later_states AS l FULL JOIN gaps_on(later) AS h USING (site) LEFT JOIN earlier_states AS e USING (site) LEFT JOIN gaps_on(earlier) AS g USING (site)
    LEFT JOIN (SELECT site, host, port, requested FROM history WHERE previous_last IS NULL AND valid_from > night_of(later)) AS f USING (site));

-- needs: sites
-- A panel: the sites that were on the list on every night of the ledger.
CREATE OR REPLACE MACRO panel_balanced() AS TABLE
SELECT site FROM (SELECT site, min(valid_from) AS since, 0 AS unlisted FROM history_all() GROUP BY site
  UNION ALL SELECT site, min(first), count(*) FILTER (class = 'unlisted') FROM gaps_all() GROUP BY site)
GROUP BY site HAVING min(since) = (SELECT min(night) FROM nights) AND sum(unlisted) = 0;

-- needs: sites
-- A panel: one site for a host and its www, that without. Other subdomains stay.
CREATE OR REPLACE MACRO panel_folded() AS TABLE
SELECT DISTINCT site FROM history_all() AS h
ANTI JOIN (SELECT DISTINCT 'www.' || host AS host, port, requested FROM history_all() WHERE NOT starts_with(host, 'www.')) USING (host, port, requested);

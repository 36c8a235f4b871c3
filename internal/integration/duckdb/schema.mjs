// The tables that bulkscan promises, written again by hand, in DuckDB's types. Notebooks and scripts rely on them:
// this list notices a renamed, retyped or dropped column, and shares no code with the writer. Columns may be added;
// only those listed are promised.
//
// A question mark after a type means that the column may be null; no other column is.

export const tables = {
  sites: `
    scan_id VARCHAR, registry_version VARCHAR, seq BIGINT, input VARCHAR,
    host VARCHAR, port INTEGER, requested VARCHAR, origin VARCHAR, rank BIGINT?, label VARCHAR?,
    registrable_domain VARCHAR?, icann_domain VARCHAR?, tld VARCHAR?, fetched_at TIMESTAMP WITH TIME ZONE?,
    outcome VARCHAR, error VARCHAR?, status INTEGER?, hops INTEGER, final_url VARCHAR?,
    redirects STRUCT(status INTEGER; url VARCHAR)[], redirect_scope VARCHAR, attempts INTEGER, remote_ip VARCHAR?,
    http_version VARCHAR?, server VARCHAR?, content_type VARCHAR?, cdn VARCHAR?, challenge VARCHAR?, etag VARCHAR?,
    last_modified VARCHAR?, cache_control VARCHAR?, x_robots_tag VARCHAR?, content_usage_header VARCHAR?,
    tls_version VARCHAR?, tls_verified BOOLEAN?,
    dns_ms FLOAT?, connect_ms FLOAT?, tls_ms FLOAT?, ttfb_ms FLOAT?, total_ms FLOAT?,
    body_bytes BIGINT, truncated BOOLEAN, body_hash BIGINT, finding VARCHAR,
    access VARCHAR, access_source VARCHAR, check_status VARCHAR, score DOUBLE,
    step_fetch VARCHAR, step_core_syntax VARCHAR, step_extensions VARCHAR,
    n_lines INTEGER, n_groups INTEGER, n_agents INTEGER, n_allow INTEGER, n_disallow INTEGER, n_sitemaps INTEGER,
    n_extensions INTEGER, n_legacy INTEGER, n_unknown INTEGER, n_orphan INTEGER, n_invalid INTEGER, n_typo INTEGER,
    has_bom BOOLEAN, is_html BOOLEAN, html_title VARCHAR?, valid_utf8 BOOLEAN?, managed_block BOOLEAN, managed_by VARCHAR?, crawl_delay DOUBLE?,
    content_signal VARCHAR?, content_usage VARCHAR?, license VARCHAR?, sitemaps VARCHAR[],
    star_verdict VARCHAR, named VARCHAR[], blocked VARCHAR[], partial VARCHAR[], policy_id BIGINT?, rfc_policy_id BIGINT?, unmanaged_policy_id BIGINT?,
    advice VARCHAR[]`,

  verdicts: `
    origin VARCHAR, host VARCHAR, port INTEGER, requested VARCHAR, seq BIGINT, rank BIGINT?, tld VARCHAR?,
    token VARCHAR, known BOOLEAN, category VARCHAR?, verdict VARCHAR, via VARCHAR, root_allowed BOOLEAN,
    n_allow INTEGER, n_disallow INTEGER, has_disallow_root BOOLEAN, dpi VARCHAR, crawl_delay DOUBLE?,
    request_rate DOUBLE?, visit_from INTEGER?, visit_to INTEGER?, content_signal VARCHAR?, content_usage VARCHAR?,
    line INTEGER?, lenient BOOLEAN, limited BOOLEAN`,

  evidence: `origin VARCHAR, seq BIGINT, line INTEGER, group_line INTEGER?, kind VARCHAR, key VARCHAR, value VARCHAR`,

  bodies: `body_hash BIGINT, body BLOB`,

  policies: `
    policy_id BIGINT, star BOOLEAN, star_verdict VARCHAR, star_root_denied BOOLEAN, star_dpi_all BOOLEAN, own VARCHAR[],
    own_blocked VARCHAR[], own_partial VARCHAR[], own_root_denied VARCHAR[], own_dpi_all VARCHAR[], content_signal VARCHAR?,
    content_usage VARCHAR?, licensed BOOLEAN, managed_by VARCHAR?`,

  token_stats: `
    token VARCHAR, known BOOLEAN, category VARCHAR?, operator VARCHAR?, purpose VARCHAR?,
    segment_kind VARCHAR, segment_value VARCHAR, sites_all BIGINT, sites_answered BIGINT, sites BIGINT, sites_rules BIGINT,
    mention BIGINT, explicit_root BIGINT, full BIGINT, partial BIGINT, any BIGINT, dpi_all BIGINT,
    rfc_effective BIGINT, unreachable BIGINT, via_own BIGINT, via_star BIGINT, via_fallback BIGINT,
    lenient BIGINT, full_via_own BIGINT, full_via_fallback BIGINT, full_via_star BIGINT,
    any_via_own BIGINT, any_via_fallback BIGINT, any_via_star BIGINT, answered_rules BIGINT, answered_no_rules BIGINT,
    answered_html BIGINT, answered_none BIGINT, answered_refused BIGINT, answered_challenged BIGINT,
    answered_rate_limited BIGINT, answered_server_error BIGINT, answered_unreachable BIGINT`,

  record_stats: `kind VARCHAR, key VARCHAR, sites BIGINT, lines BIGINT`,
};

// The only words that these columns may hold.
export const words = {
  sites: {
    requested: ["https", "http", "ftp", "auto"],
    outcome: [
      "answered", "redirect_limit", "redirect_invalid", "dns_not_found", "dns_failed", "dns_timeout", "connect_refused",
      "connect_timeout", "connect_failed", "tls_failed", "timeout", "reset", "closed_early", "bad_response",
      "bad_encoding", "header_too_large", "blocked_address", "opted_out", "not_archived", "carried",
    ],
    finding: [
      "not_asked", "challenged", "rate_limited", "unreachable", "server_error", "refused", "none", "html", "no_rules", "rules",
    ],
    redirect_scope: ["none", "same_host", "www", "same_domain", "other_domain"],
    access: ["conditional", "full_allow", "full_disallow", "unknown"],
    access_source: ["fresh", "cached", "stale", "expired"],
    check_status: ["pass", "warn", "fail"],
    step_fetch: ["pass", "warn", "fail", "skipped"],
    step_core_syntax: ["pass", "warn", "fail", "skipped"],
    step_extensions: ["pass", "warn", "fail", "skipped"],
    star_verdict: ["allowed", "partial", "blocked", "unknown"],
  },
  verdicts: {
    requested: ["https", "http", "ftp", "auto"],
    verdict: ["allowed", "partial", "blocked"],
    dpi: ["all", "some", "none"],
  },
  evidence: {
    kind: ["sitemap", "extension", "signal", "usage", "license", "legacy", "unknown", "orphan", "invalid", "typo", "conflict"],
  },
  policies: { star_verdict: ["allowed", "partial", "blocked"] },
  token_stats: { segment_kind: ["all", "rank", "tld", "label"] },
};

// columnsOf returns a table's columns as [{name, type, nullable}].
export function columnsOf(table) {
  return tables[table].split(",").map((text) => {
    const [, name, type, mark] = text.trim().match(/^(\w+) (.+?)(\??)$/);
    return { name, type: type.replaceAll(";", ","), nullable: mark === "?" };
  });
}

-- What is wrong in files: invalid lines, unknown keys, typos, orphan rules, a BOM, HTML?
-- Definition: none; see docs/CHECKS.md.
-- Over: sites with rules, and all their lines.
-- Caveat: an HTML page is full of invalid lines; invalid_no_html leaves such pages out.
SELECT fault.kind AS kind, fault.sites AS sites, fault.sites / nullif(total, 0) AS share, CAST(fault.lines AS BIGINT) AS lines
FROM (SELECT count(*) AS total, unnest([
    {'kind': 'invalid', 'sites': count(*) FILTER (n_invalid > 0), 'lines': sum(n_invalid)},
    {'kind': 'invalid_no_html', 'sites': count(*) FILTER (n_invalid > 0 AND NOT is_html), 'lines': sum(n_invalid) FILTER (NOT is_html)},
    {'kind': 'unknown', 'sites': count(*) FILTER (n_unknown > 0), 'lines': sum(n_unknown)},
    {'kind': 'legacy', 'sites': count(*) FILTER (n_legacy > 0), 'lines': sum(n_legacy)},
    {'kind': 'typo', 'sites': count(*) FILTER (n_typo > 0), 'lines': sum(n_typo)},
    {'kind': 'orphan', 'sites': count(*) FILTER (n_orphan > 0), 'lines': sum(n_orphan)},
    {'kind': 'bom', 'sites': count(*) FILTER (has_bom), 'lines': NULL},
    {'kind': 'html', 'sites': count(*) FILTER (is_html), 'lines': NULL},
    {'kind': 'not_utf8', 'sites': count(*) FILTER (NOT valid_utf8), 'lines': NULL},
    {'kind': 'no_group', 'sites': count(*) FILTER (n_groups = 0), 'lines': NULL}]) AS fault
  FROM sites WHERE scan_date = latest() AND access = 'conditional')
ORDER BY sites DESC, kind;

-- What is wrong in files: invalid lines, unknown keys, typos, orphan rules, a BOM?
-- Definition: none; see docs/CHECKS.md.
-- Over: sites with rules, and all their lines.
-- Caveat: web pages instead of files, and files without any known record, are findings of their own (findings.sql).
SELECT fault.kind AS kind, fault.sites AS sites, fault.sites / nullif(total, 0) AS share, CAST(fault.lines AS BIGINT) AS lines
FROM (SELECT count(*) AS total, unnest([
    {'kind': 'invalid', 'sites': count(*) FILTER (n_invalid > 0), 'lines': sum(n_invalid)},
    {'kind': 'unknown', 'sites': count(*) FILTER (n_unknown > 0), 'lines': sum(n_unknown)},
    {'kind': 'legacy', 'sites': count(*) FILTER (n_legacy > 0), 'lines': sum(n_legacy)},
    {'kind': 'typo', 'sites': count(*) FILTER (n_typo > 0), 'lines': sum(n_typo)},
    {'kind': 'orphan', 'sites': count(*) FILTER (n_orphan > 0), 'lines': sum(n_orphan)},
    {'kind': 'bom', 'sites': count(*) FILTER (has_bom), 'lines': NULL},
    {'kind': 'not_utf8', 'sites': count(*) FILTER (NOT valid_utf8), 'lines': NULL},
    {'kind': 'no_group', 'sites': count(*) FILTER (n_groups = 0), 'lines': NULL}]) AS fault
  FROM sites WHERE scan_date = latest() AND finding = 'rules')
ORDER BY sites DESC, kind;

-- How do sites do in each step of the check robots.txt?
-- Definition: none; see docs/CHECKS.md.
-- Over: sites that were asked.
-- Caveat: a step is skipped where the one before left nothing to look at.
SELECT step, status, count(*) AS sites
FROM (SELECT unnest([{'step': 'step_fetch', 'status': step_fetch}, {'step': 'step_core_syntax', 'status': step_core_syntax},
    {'step': 'step_extensions', 'status': step_extensions}], recursive := true)
  FROM sites WHERE scan_date = latest() AND access <> 'unknown')
GROUP BY step, status
ORDER BY step, status;

-- How many groups, agents and rules do files have?
-- Definition: none; rules are allow and disallow lines, empty ones included.
-- Over: sites with rules. Percentiles are values that occur.
-- Caveat: a file with only sitemaps has no group.
SELECT measure.name AS measure, measure.of[1] AS p10, measure.of[2] AS p25, measure.of[3] AS p50, measure.of[4] AS p75,
  measure.of[5] AS p90, measure.of[6] AS p99, measure.of[7] AS most
FROM (SELECT unnest([
    {'name': 'lines', 'of': quantile_disc(n_lines, [0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1])},
    {'name': 'groups', 'of': quantile_disc(n_groups, [0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1])},
    {'name': 'agents', 'of': quantile_disc(n_agents, [0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1])},
    {'name': 'rules', 'of': quantile_disc(n_allow + n_disallow, [0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1])}]) AS measure
  FROM sites WHERE scan_date = latest() AND finding = 'rules')
ORDER BY measure;

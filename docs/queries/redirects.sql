-- How many sites redirect robots.txt: to another host, another domain, down to http?
-- Definition: none.
-- Over: sites that answered with a status.
-- Caveat: example.com and www.example.com are two hosts of one domain. A downgrade is a redirect from https to http.
SELECT count(*) AS sites_answered, count(*) FILTER (hops > 0) AS redirected, count(*) FILTER (hops > 1) AS more_than_once,
  count(*) FILTER (url_host(final_url) <> host) AS other_host,
  count(*) FILTER (NOT ends_with('.' || url_host(final_url), '.' || registrable_domain)) AS other_domain,
  count(*) FILTER (starts_with(origin, 'https:') AND list_contains(list_transform(redirects, r -> starts_with(r.url, 'http:')), true)) AS downgraded
FROM sites
WHERE scan_date = latest() AND status IS NOT NULL;

-- name: trips_by_region_and_day
-- description: What each region earned on each day: trips asked for, finished and cancelled, revenue, distance, ratings
-- materialized: incremental
-- keys: region_id, day
-- changed: shop.trips: region_id, CAST(requested_at AS DATE)
-- expect: trips >= finished + cancelled
-- expect: revenue >= 0
-- optional: yes
--
-- The day is that of the request, as the source wrote it down (a DATETIME, which has no time zone).
SELECT
    t.region_id,
    CAST(t.requested_at AS DATE)                                            AS day,
    r.name                                                                  AS region,
    c.name                                                                  AS country,
    c.currency,
    COUNT(*)                                                                AS trips,
    COUNT_IF(t.status = 'finished')                                         AS finished,
    COUNT_IF(t.status = 'cancelled')                                        AS cancelled,
    COUNT(DISTINCT t.driver_id)                                             AS drivers,
    COALESCE(SUM(t.fare) FILTER (WHERE t.status = 'finished'), 0)           AS revenue,
    ROUND(AVG(t.fare) FILTER (WHERE t.status = 'finished'), 2)              AS average_fare,
    ROUND(SUM(t.distance_km) FILTER (WHERE t.status = 'finished'), 1)       AS distance_km,
    ROUND(AVG(t.rating), 2)                                                 AS average_rating
FROM shop.trips AS t
LEFT JOIN shop.regions AS r ON r.id = t.region_id
LEFT JOIN shop.countries AS c ON c.code = r.country_code
GROUP BY t.region_id, CAST(t.requested_at AS DATE), r.name, c.name, c.currency

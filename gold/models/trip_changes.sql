-- name: trip_changes
-- description: Every state that each trip was in, with its region's and driver's names and rates as they were then
-- materialized: table
-- keys: trip_id, position
-- optional: yes
--
-- Ids are replaced by values from the histories, at the change's own position in the source's log: a driver who was
-- renamed later bears the old name here, and nothing is asked of the source again.
SELECT
    t.id                         AS trip_id,
    t.__valid_from_position      AS position,
    t.__valid_from               AS changed_at,
    t.__valid_to                 AS changed_again_at,
    t.__is_current               AS is_current,
    t.status,
    t.fare,
    t.distance_km,
    t.rating,
    r.name                       AS region,
    r.country_code,
    r.surge                      AS region_surge,
    d.name                       AS driver,
    d.rating                     AS driver_rating
FROM shop.trips__history AS t
LEFT JOIN shop.regions__history AS r
    ON r.id = t.region_id
    AND r.__valid_from_position <= t.__valid_from_position
    AND (r.__valid_to_position IS NULL OR t.__valid_from_position < r.__valid_to_position)
LEFT JOIN shop.drivers__history AS d
    ON d.id = t.driver_id
    AND d.__valid_from_position <= t.__valid_from_position
    AND (d.__valid_to_position IS NULL OR t.__valid_from_position < d.__valid_to_position)

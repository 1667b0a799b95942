-- name: reservation_outcomes
-- description: What became of each reservation, told by the events of the outbox: returned, cancelled, or neither yet
-- materialized: table
-- keys: event_id
-- optional: yes
WITH ends AS (
    SELECT __key, __position, __type, __ts_ms FROM shop.cdc_outbox__returned
    UNION ALL
    SELECT __key, __position, __type, __ts_ms FROM shop.cdc_outbox__cancelled
)

SELECT
    r.__id                                                    AS event_id,
    r.`user`                                                  AS user_id,
    r.thing                                                   AS thing_id,
    TRY_CAST(r.`from` AS DATE)                                    AS from_day,
    r.days,
    TRY_CAST(r.total AS DECIMAL(10, 2))                           AS total,
    timestamp_millis(r.__ts_ms)                               AS reserved_at,
    COALESCE(MIN_BY(e.__type, e.__position), 'reserved')      AS outcome,
    timestamp_millis(MIN_BY(e.__ts_ms, e.__position))         AS ended_at
FROM shop.cdc_outbox__reserved AS r
LEFT JOIN ends AS e ON e.__key = r.__key AND e.__position > r.__position
GROUP BY r.__id, r.`user`, r.thing, r.`from`, r.days, r.total, r.__ts_ms

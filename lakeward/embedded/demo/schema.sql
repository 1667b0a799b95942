-- A ride service (countries, regions, drivers, trips) and a rental (users, things, reservations) that tells other
-- systems through an outbox. Runs on MySQL 8 and 9 and on MariaDB 10.5 and later. No cascades, no ON UPDATE clock:
-- every value is written by the one who writes the row, so that a burst of traffic can be repeated.
--
-- Keys of each kind: a number (most), a string (countries), several columns (reservations), none (audit_log).

CREATE TABLE countries (
    code        CHAR(2)          NOT NULL PRIMARY KEY,
    name        VARCHAR(80)      NOT NULL,
    currency    CHAR(3)          NOT NULL,
    population  BIGINT UNSIGNED  NOT NULL,
    served      TINYINT(1)       NOT NULL DEFAULT 1
);

CREATE TABLE regions (
    id            SMALLINT UNSIGNED  NOT NULL AUTO_INCREMENT PRIMARY KEY,
    country_code  CHAR(2)            NOT NULL,
    name          VARCHAR(80)        NOT NULL,
    centre        POINT              NOT NULL,
    opened        DATE               NOT NULL,
    utc_offset    TIME               NOT NULL,
    surge         DECIMAL(4,2)       NOT NULL DEFAULT 1.00,
    UNIQUE KEY (country_code, name),
    FOREIGN KEY (country_code) REFERENCES countries (code)
);

CREATE TABLE drivers (
    id           INT UNSIGNED       NOT NULL AUTO_INCREMENT PRIMARY KEY,
    region_id    SMALLINT UNSIGNED  NOT NULL,
    name         VARCHAR(80)        NOT NULL,
    licence      BINARY(8)          NOT NULL,
    since        YEAR               NOT NULL,
    shift_start  TIME(3)            NULL,
    languages    SET('en','es','de','fr','hi','pt') NOT NULL DEFAULT 'en',
    state        ENUM('off','waiting','riding') NOT NULL DEFAULT 'off',
    rating       FLOAT              NULL,
    flags        BIT(8)             NOT NULL DEFAULT 0,
    seen_at      TIMESTAMP(6)       NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
    UNIQUE KEY (licence),
    FOREIGN KEY (region_id) REFERENCES regions (id)
);

CREATE TABLE trips (
    id            BIGINT UNSIGNED    NOT NULL AUTO_INCREMENT PRIMARY KEY,
    driver_id     INT UNSIGNED       NULL,
    region_id     SMALLINT UNSIGNED  NOT NULL,
    rider         VARCHAR(64)        NOT NULL,
    requested_at  DATETIME(6)        NOT NULL,
    started_at    TIMESTAMP(3)       NULL,
    finished_at   TIMESTAMP(3)       NULL,
    status        ENUM('requested','riding','finished','cancelled') NOT NULL DEFAULT 'requested',
    fare          DECIMAL(10,2)      NULL,
    distance_km   DOUBLE             NULL,
    surge         FLOAT              NOT NULL DEFAULT 1,
    tags          SET('pool','pet','airport','night') NOT NULL DEFAULT '',
    pickup        POINT              NOT NULL,
    details       JSON               NULL,
    rating        TINYINT            NULL,
    KEY (status),
    FOREIGN KEY (driver_id) REFERENCES drivers (id),
    FOREIGN KEY (region_id) REFERENCES regions (id)
);

CREATE TABLE users (
    id          INT UNSIGNED   NOT NULL AUTO_INCREMENT PRIMARY KEY,
    email       VARCHAR(190)   NOT NULL,
    password    VARCHAR(100)   NOT NULL,
    name        VARCHAR(80)    NOT NULL,
    balance     DECIMAL(12,4)  NOT NULL DEFAULT 0,
    about       TEXT           NULL,
    photo       BLOB           NULL,
    created_at  TIMESTAMP      NOT NULL DEFAULT CURRENT_TIMESTAMP,
    UNIQUE KEY (email)
);

CREATE TABLE things (
    id          INT UNSIGNED   NOT NULL AUTO_INCREMENT PRIMARY KEY,
    name        VARCHAR(80)    NOT NULL,
    kind        ENUM('bike','boat','tent','camera') NOT NULL,
    state       ENUM('free','reserved','broken') NOT NULL DEFAULT 'free',
    day_price   DECIMAL(8,2)   NOT NULL,
    weight_kg   DOUBLE         NULL,
    made        YEAR           NULL,
    changed_at  TIMESTAMP(6)   NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
    KEY (state)
);

CREATE TABLE reservations (
    user_id     INT UNSIGNED   NOT NULL,
    thing_id    INT UNSIGNED   NOT NULL,
    from_day    DATE           NOT NULL,
    days        SMALLINT       NOT NULL,
    total       DECIMAL(10,2)  NOT NULL,
    state       ENUM('active','returned','cancelled') NOT NULL DEFAULT 'active',
    created_at  TIMESTAMP(6)   NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
    PRIMARY KEY (user_id, thing_id, from_day),
    FOREIGN KEY (user_id) REFERENCES users (id),
    FOREIGN KEY (thing_id) REFERENCES things (id)
);

-- Written in the transaction of the change it tells of.
CREATE TABLE cdc_outbox (
    id              BIGINT       NOT NULL AUTO_INCREMENT PRIMARY KEY,
    aggregate_type  VARCHAR(40)  NOT NULL,
    aggregate_id    VARCHAR(64)  NOT NULL,
    event_type      VARCHAR(40)  NOT NULL,
    payload         JSON         NOT NULL,
    created_at      TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)
);

-- No key: two of its rows may be equal.
CREATE TABLE audit_log (
    happened_at  DATETIME(3)   NOT NULL,
    actor        VARCHAR(64)   NOT NULL,
    action       VARCHAR(32)   NOT NULL,
    line         TEXT          NULL
);

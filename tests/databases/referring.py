"""A shop whose tables refer to each other in every way that changes children, and transactions that set it off."""

from __future__ import annotations

from servers.running import Database

TABLES = """
CREATE TABLE firm (id INT PRIMARY KEY, name VARCHAR(20));
CREATE TABLE customer (code VARCHAR(10) COLLATE {ci} PRIMARY KEY, firm INT, boss VARCHAR(10) COLLATE {ci},
  FOREIGN KEY (firm) REFERENCES firm (id) ON DELETE CASCADE ON UPDATE CASCADE,
  FOREIGN KEY (boss) REFERENCES customer (code) ON DELETE CASCADE);
CREATE TABLE orders (customer VARCHAR(10) COLLATE {ci}, no INT, note VARCHAR(20), PRIMARY KEY (customer, no),
  FOREIGN KEY (customer) REFERENCES customer (code) ON DELETE CASCADE ON UPDATE CASCADE);
CREATE TABLE item (id INT PRIMARY KEY, customer VARCHAR(10) COLLATE {ci}, no INT, amount DECIMAL(8,2), picture BLOB,
  FOREIGN KEY (customer, no) REFERENCES orders (customer, no) ON DELETE SET NULL ON UPDATE CASCADE);
CREATE TABLE tag (customer VARCHAR(10) COLLATE {ci}, word VARCHAR(10),
  FOREIGN KEY (customer) REFERENCES customer (code) ON DELETE CASCADE ON UPDATE SET NULL);
CREATE TABLE visit (id INT PRIMARY KEY, firm INT,
  FOREIGN KEY (firm) REFERENCES firm (id) ON DELETE CASCADE ON UPDATE CASCADE)
"""
ROWS = """
INSERT INTO firm VALUES (1, 'one'), (2, 'two'), (3, 'three'), (4, 'four'), (5, 'five');
INSERT INTO customer VALUES ('Ann', 1, NULL), ('bob', 1, 'ANN'), ('cy', 1, 'bob'), ('dée', 2, NULL), ('eve', 3, NULL),
  ('fay', 4, NULL), ('gus', 5, NULL);
INSERT INTO orders VALUES ('ann', 1, 'x'), ('bob', 1, 'y'), ('Dee', 1, 'z'), ('eve', 1, 'e'), ('eve', 2, 'e'),
  ('fay', 1, 'f'), ('gus', 7, 'g');
INSERT INTO item VALUES (1, 'ann', 1, 1.50, X'00ff'), (2, 'bob', 1, 2, NULL), (3, 'Dee', 1, 3, NULL),
  (4, 'eve', 1, 4, X''), (5, 'eve', 2, 5, NULL), (6, 'fay', 1, 6, NULL), (7, 'gus', 7, 7, NULL), (8, NULL, 1, 8, NULL);
INSERT INTO tag VALUES ('eve', 'a'), ('EVE', 'a'), ('eve', 'a'), ('Ann', 'b'), ('fay', 'c'), ('gus', 'd'), (NULL, 'n');
INSERT INTO visit VALUES (1, 1), (2, 2), (3, 3), (4, 4), (5, 5)
"""
# Each line is a transaction.
CHANGES = """
DELETE FROM firm WHERE id = 1
UPDATE customer SET code = 'Eva' WHERE code = 'eve'; UPDATE orders SET note = 'moved' WHERE customer = 'eva' AND no = 2
UPDATE firm SET id = 40 WHERE id = 4; UPDATE firm SET id = 41 WHERE id = 40; UPDATE visit SET id = 44 WHERE firm = 41
INSERT INTO visit VALUES (6, 3), (7, 3); UPDATE visit SET firm = 2 WHERE id = 7; DELETE FROM firm WHERE id = 3
INSERT INTO firm VALUES (3, 'again'); INSERT INTO visit VALUES (6, 3), (3, 3)
DELETE FROM orders WHERE customer = 'DEE'; DELETE FROM customer WHERE code = 'dee'
SET foreign_key_checks = 0; DELETE FROM firm WHERE id = 5; SET foreign_key_checks = 1
"""


def make(database: Database) -> None:
    """The tables with their first rows."""
    for statement in f"{TABLES};{ROWS}".split(";\n"):
        database.execute(statement.format(ci="utf8mb4_general_ci"))


def change(database: Database) -> None:
    """The transactions."""
    for line in CHANGES.strip().splitlines():
        database.execute("BEGIN")
        for statement in line.split("; "):
            database.execute(statement)
        database.execute("COMMIT")

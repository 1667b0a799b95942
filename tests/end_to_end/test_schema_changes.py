"""Schema changes reach silver: followed without reading the table again where old values are known, else read again."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.timeout(600)


def generations(pipeline):
    return {n.partition(".")[2]: t.generation for n, t in pipeline.bronze_state().tables.items()}


def test_columns_are_renamed_dropped_and_widened_without_reading_the_table_again(pipeline, database) -> None:
    rest = (
        f'[tables."{database.name}.t"]\nhistory = "scd2"\n[tables."{database.name}.kept"]\ndropped_columns = "keep"\n'
    )
    pipeline.write_config(rest=rest)
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(10), n INT, d DECIMAL(8,2), f FLOAT, gone INT)")
    database.execute("CREATE TABLE kept (id INT PRIMARY KEY, a INT, gone INT)")
    database.execute("CREATE TABLE bare (a INT, gone INT)")
    database.execute("CREATE TABLE other (id INT PRIMARY KEY, v INT)")
    database.execute(
        "INSERT INTO t VALUES (1, 'one', 1, 1.25, 0.1, 1), (2, 'two', 2, 2.5, -3.4e38, 2), (3, 'x', 3, 3, 3, 3)"
    )
    database.execute("INSERT INTO kept VALUES (1, 1, 1), (2, 2, 2)")
    database.execute("INSERT INTO bare VALUES (1, 1), (1, 2), (2, 2)")
    database.execute("INSERT INTO other VALUES (1, 1)")
    pipeline.run()
    assert pipeline.verify().equal
    for statement in (
        "UPDATE t SET a = 'uno' WHERE id = 1",
        "ALTER TABLE t RENAME COLUMN a TO `the name`, DROP COLUMN gone",
        "UPDATE t SET `the name` = 'dos' WHERE id = 2",
        "ALTER TABLE t MODIFY n BIGINT, MODIFY d DECIMAL(12,4), CHANGE f g DOUBLE FIRST",
        "INSERT INTO t (id, `the name`, n, d, g) VALUES (4, 'four', 9000000000, 12345678.1234, 0.1)",
        "DELETE FROM t WHERE id = 3",
        "ALTER TABLE t RENAME COLUMN id TO `no`",
        "UPDATE t SET `no` = 5 WHERE `no` = 4",
        "ALTER TABLE kept DROP COLUMN gone",
        "UPDATE kept SET a = 10 WHERE id = 1",
        "INSERT INTO kept VALUES (3, 3)",
        "DELETE FROM bare WHERE gone = 1",
        "ALTER TABLE bare DROP COLUMN gone, RENAME COLUMN a TO b",
        "INSERT INTO bare VALUES (1), (2)",
        "UPDATE other SET v = 2",
    ):
        database.execute(statement)
    pipeline.run()
    proof = pipeline.verify()
    assert proof.equal, proof.tables
    assert generations(pipeline) == {"t": 1, "kept": 1, "bare": 1, "other": 1}
    assert pipeline.rows("t", "no", "`the name`", "n") == [
        (1, "uno", 1), (2, "dos", 2), (5, "four", 9000000000),
    ]  # fmt: skip
    assert pipeline.rows("kept", "id", "a", "gone") == [(1, 10, 1), (2, 2, 2), (3, 3, None)]
    assert pipeline.rows("bare", "b") == [(1,), (1,), (2,), (2,)]

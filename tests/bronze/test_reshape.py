"""Which changes of columns are followed without reading the table again, and what the table is after them."""

from __future__ import annotations

import pytest

from bronze.binlog.statements import Alter, effects
from bronze.reshape import Reshaped, reshape
from lakeward.names import TableName
from lakeward.schema import TableSchema, column_from_catalog

COLUMNS = {
    "id": "int",
    "n": "smallint",
    "u": "int unsigned",
    "d": "decimal(10,2)",
    "f": "float",
    "v": "varchar(20)",
    "c": "char(5)",
    "t": "text",
    "b": "varbinary(20)",
    "e": "enum('a','b')",
    "at": "datetime(3)",
    "time": "time",
    "flag": "tinyint(1)",
    "bits": "bit(7)",
    "must": "varchar(20)",
    "secret": "int",
}
TEXT = ("v", "c", "t", "e", "must")


def table(**more):
    columns = [
        column_from_catalog(
            name,
            kind,
            nullable=name not in ("id", "must"),
            charset="utf8mb4" if name in TEXT else None,
            collation="utf8mb4_bin" if name in TEXT else None,
            tinyint1="boolean",
        )
        for name, kind in COLUMNS.items()
    ]
    return TableSchema(TableName("shop", "t"), tuple(columns), ("id",), "primary", "utf8mb4", "id")


def after(clauses, left=(), excluded=()):
    (effect,) = effects(f"ALTER TABLE t {clauses}", "shop")
    assert isinstance(effect, Alter)
    assert effect.harmless
    return reshape(table(), effect, excluded=excluded, left=left)


@pytest.mark.parametrize(
    ("clauses", "name", "kind"),
    [
        ("MODIFY id BIGINT NOT NULL AUTO_INCREMENT", "id", "BIGINT"),
        ("MODIFY id BIGINT", "id", "BIGINT"),
        ("MODIFY n INT", "n", "INT"),
        ("MODIFY u BIGINT UNSIGNED", "u", "DECIMAL(20,0)"),
        ("MODIFY d DECIMAL(12,2)", "d", "DECIMAL(12,2)"),
        ("MODIFY d DECIMAL(14,4)", "d", "DECIMAL(14,4)"),
        ("MODIFY f DOUBLE", "f", "DOUBLE"),
        ("MODIFY v VARCHAR(21)", "v", "STRING"),
        ("MODIFY v TEXT CHARACTER SET utf8mb4", "v", "STRING"),
        ("MODIFY c CHAR(9) COLLATE utf8mb4_general_ci", "c", "STRING"),
        ("MODIFY t LONGTEXT", "t", "STRING"),
        ("MODIFY b VARBINARY(20)", "b", "BINARY"),
        ("MODIFY e ENUM('a','b','c') DEFAULT 'c'", "e", "STRING"),
        ("MODIFY at DATETIME(6) FIRST", "at", "TIMESTAMP_NTZ"),
        ("MODIFY flag TINYINT(1) DEFAULT 1", "flag", "BOOLEAN"),
        ("MODIFY bits BIT(8)", "bits", "BIGINT"),
        ("MODIFY must VARCHAR(20)", "must", "STRING"),
        ("CHANGE v w VARCHAR(30) AFTER id", "w", "STRING"),
    ],
)
def test_a_type_that_holds_all_that_the_old_one_held_is_followed(clauses, name, kind):
    found = after(clauses)
    assert isinstance(found, Reshaped), found
    assert found.schema.column(name).spark == kind
    assert len(found.schema.columns) == len(COLUMNS)


@pytest.mark.parametrize(
    "clauses",
    [
        "MODIFY id INT UNSIGNED",
        "MODIFY n TINYINT",
        "MODIFY n BIGINT UNSIGNED",
        "MODIFY u BIGINT",
        "MODIFY d DECIMAL(10,3)",
        "MODIFY d DECIMAL(9,2)",
        "MODIFY d DECIMAL(45,2)",
        "MODIFY v VARCHAR(19)",
        "MODIFY v VARCHAR(30) CHARACTER SET latin1",
        "MODIFY v VARBINARY(99)",
        "MODIFY v TINYTEXT",
        "MODIFY t TEXT",
        "MODIFY b BINARY(30)",
        "MODIFY e ENUM('b','a')",
        "MODIFY e ENUM('a')",
        "MODIFY e VARCHAR(10)",
        "MODIFY at DATETIME",
        "MODIFY at TIMESTAMP NULL",
        "MODIFY time TIME(3)",
        "MODIFY flag INT",
        "MODIFY bits BIT(64)",
        "MODIFY v VARCHAR(20) NOT NULL",
        "MODIFY n SMALLINT AUTO_INCREMENT",
        "MODIFY unknown INT",
    ],
)
def test_any_other_type_has_the_table_read_again(clauses):
    assert isinstance(after_any(clauses), str)


def after_any(clauses):
    (effect,) = effects(f"ALTER TABLE t {clauses}", "shop")
    assert isinstance(effect, Alter)
    return reshape(table(), effect, excluded=(), left=()) if effect.harmless else "read again"


def test_names_and_keys_follow_a_rename():
    found = after("RENAME COLUMN id TO `no`, RENAME COLUMN v TO w, DROP n, ADD x INT")
    assert isinstance(found, Reshaped)
    assert found.schema.keys == ("no",)
    assert found.schema.auto == "no"
    assert found.renamed == (("id", "no"), ("v", "w"))
    assert set(found.left) == {"id", "v", "n"}
    assert [c.name for c in found.schema.columns][:3] == ["no", "u", "d"]


@pytest.mark.parametrize(
    "clauses",
    [
        "RENAME COLUMN n TO u, RENAME COLUMN u TO n",
        "DROP n, RENAME COLUMN u TO n",
        "DROP n, ADD n INT",
        "RENAME COLUMN n TO was",
        "ADD was INT",
        "RENAME COLUMN n TO secret",
        "RENAME COLUMN secret TO open",
        "DROP id",
        "DROP unknown",
    ],
)
def test_a_name_that_would_go_from_one_column_to_another_has_the_table_read_again(clauses):
    assert isinstance(after(clauses, left=("was",), excluded=("secret",)), str)


def test_a_column_that_is_not_there_may_be_missing_where_the_statement_says_so():
    found = after("DROP COLUMN IF EXISTS unknown")
    assert isinstance(found, Reshaped)
    assert found.schema == table()


def test_the_character_set_of_columns_that_name_none_is_forgotten_when_it_changes():
    found = after("DEFAULT CHARACTER SET latin1")
    assert isinstance(found, Reshaped)
    assert found.schema.charset is None
    (effect,) = effects("ALTER TABLE t MODIFY v VARCHAR(30)", "shop")
    assert isinstance(effect, Alter)
    assert isinstance(reshape(found.schema, effect, excluded=(), left=()), str)

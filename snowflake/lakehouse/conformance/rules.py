"""Snowflake's rules for the lake, each with what mends a table that breaks it, and what a check found."""

from __future__ import annotations

from dataclasses import dataclass

# By the rule's short name: what has to hold, and what mends it.
RULES = {
    "delete-files": (
        "Parquet data files alone, no delete files and no deletion vectors: Snowflake goes on serving deleted rows",
        "write copy-on-write only; `lakeward gold --rebuild TABLE` writes the table anew",
    ),
    "format-version": ("format version 2", "publish the table anew under version 2; never upgrade one in place"),
    "parquet-types": (
        "no unsigned integers in Parquet, and lists of three levels with `element`",
        "let Lakeward write the table: `lakeward gold --rebuild TABLE`",
    ),
    "timestamps": ("timestamps of microseconds, never INT96 or nanoseconds", "write them as microseconds"),
    "width": ("DECIMAL of at most 38 digits, nested types of at most 1,000 sub-columns", "publish it as STRING"),
    "utf-8": ("valid UTF-8 in data and metadata", "read the table again: `lakeward resnapshot TABLE`"),
    "paths": (
        "every file below the volume's base URL, there, of its recorded size, and once in a snapshot",
        "publish the table anew where the lake is now: `lakeward gold --rebuild TABLE`",
    ),
    "statistics": (
        "row and null counts and bounds that match the data, and optional columns",
        "`lakeward gold --rebuild TABLE` writes the files anew",
    ),
    "names": (
        "column names in lower case, none twice but for case, none that Snowflake reserves",
        "leave the column out with exclude_columns, or give it another name in a mart",
    ),
    "retention": (
        "the snapshot that Snowflake stands at is still there",
        "refresh more often, or keep snapshots longer: `lakeward snowflake apply` moves Snowflake on now",
    ),
    "delta-protocol": (
        "Delta reader version of at most 3, without column mapping and row tracking",
        "leave the table out of [snowflake] delta; its mirror in gold is shown all the same",
    ),
    "delta-log": (
        "at most 1,000 commits past a checkpoint",
        "run `lakeward silver` again, which writes checkpoints, or OPTIMIZE the table",
    ),
    "sql": ("statements that cannot write to the lake", "report it: the plan is Lakeward's own"),
}
RESERVED = frozenset(
    # "Cannot be used as column name" in Snowflake's list of reserved words
    {"constraint", "current_date", "current_time", "current_timestamp", "current_user", "localtime", "localtimestamp"}
)


@dataclass(frozen=True)
class Finding:
    """A rule that is broken, where, and what was found there. Holds no value of a row."""

    rule: str
    where: str  # schema.table, or a statement
    what: str

    def __str__(self) -> str:
        says, remedy = RULES[self.rule]
        return f"{self.where}: {self.what}\n  rule {self.rule}: {says}\n  to mend it: {remedy}"

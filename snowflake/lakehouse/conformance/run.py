"""`lakeward snowflake check`, and the gate after gold: every rule, on everything that is published.

The gate after gold reads metadata and the footers of files that no check has seen; the command, and `apply` before it
changes anything, also their values. A file never changes, so what has passed is not read again: its path stands in
`_lakeward/snowflake-checked.json`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pyarrow.fs as pafs
from pyiceberg.manifest import DataFile

from gold.published import PublishedTable, published
from lakeward.config import Config
from lakeward.errors import GateStoppedError, TerminalError
from lakeward.lake import Lake
from snowflake.lakehouse.apply import SHOWN
from snowflake.lakehouse.conformance.delta import check_delta
from snowflake.lakehouse.conformance.parquet import check_file, check_footer
from snowflake.lakehouse.conformance.rules import Finding
from snowflake.lakehouse.conformance.sql import check_sql
from snowflake.lakehouse.conformance.table import LakeFiles, LiveTable, check_table, read_table
from snowflake.lakehouse.plan import build, delta_tables
from snowflake.lakehouse.statements import statements
from snowflake.lakehouse.storage import from_root

DOCUMENT = "snowflake-checked"
THREADS = 4
SHOWN_MAX = 20  # findings in an error


@dataclass
class Report:
    """What a check read, and what it found."""

    tables: int = 0
    files: int = 0  # Parquet files that no earlier check had passed
    findings: list[Finding] = field(default_factory=list)


def check(lake: Lake, config: Config, *, values: bool = True, sql: bool = True) -> Report:
    """Check every published table and, with `sql`, the plan; with `values`, also the values of files not read before.

    Raises ConfigError as the plan does.
    """
    report = Report()
    if sql:
        report.findings += check_sql(statements(build(lake, config).text))
    known = lake.read(DOCUMENT) or {}
    passed = {path: bool(deep) for path, deep in dict(known.get("files", {})).items()}
    shown = (lake.read(SHOWN) or {}).get("snapshots", {})
    files, kept, others = LakeFiles(lake), dict[str, bool](), list[tuple[str, str]]()
    report.findings += list(_base_url(lake, config))
    with ThreadPoolExecutor(THREADS) as pool:
        for table in published(lake):
            report.tables += 1
            if table.export_location is not None:
                others += [(f"the export of {table.schema}.{table.table}", path) for path in _export(files, table)]
            live, found = read_table(files, f"{table.schema}.{table.table}", table.metadata_file)
            report.findings += found
            if live is None:
                continue
            found = [*check_table(files, live), *_retention(live, shown)]
            new = [f for f in live.files if f.file_path not in passed or (values and not passed[f.file_path])]
            report.files += len(new)
            look = functools.partial(_look, files, live, values)
            in_files = list(pool.map(look, new))
            report.findings += [*found, *(f for one in in_files for f in one)]
            bad = {f.file_path for f, one in zip(new, in_files, strict=True) if one}
            kept |= {f.file_path: passed[f.file_path] for f in live.files if f.file_path in passed}
            kept |= {f.file_path: values for f in new if f.file_path not in bad}
        for name in delta_tables(lake, config):
            in_log: set[str] = set()
            report.findings += check_delta(lake, name, in_log)
            others += [(f"silver {name}", path) for path in sorted(in_log)]
        fs, base = lake.filesystem()
        unread = [(name, path) for name, path in others if path.removeprefix(base) not in passed]
        report.files += len(unread)
        footers = list(pool.map(lambda one: list(check_footer(fs, one[1], one[0])), unread))
        report.findings += [f for one in footers for f in one]
        broken = {path for (_, path), one in zip(unread, footers, strict=True) if one}
        kept |= {path.removeprefix(base): True for _, path in others if path not in broken}
    report.findings = list(dict.fromkeys(report.findings))
    lake.write(DOCUMENT, {"files": kept})
    return report


def _look(files: LakeFiles, table: LiveTable, values: bool, file: DataFile) -> list[Finding]:
    try:
        fs, path = files.at(file.file_path)
        return list(check_file(fs, path, file, table.name, table.metadata.schema(), values=values))
    except (OSError, TerminalError):
        return []  # named already, by its path


def _export(files: LakeFiles, table: PublishedTable) -> list[str]:
    """The Parquet files of a table's export."""
    fs, folder = files.at(table.export_location or "")
    found = fs.get_file_info(pafs.FileSelector(folder, recursive=True, allow_not_found=True))
    return sorted(file.path for file in found if file.is_file and file.base_name.endswith(".parquet"))


def _base_url(lake: Lake, config: Config) -> Iterator[Finding]:
    """Iceberg's metadata names its files by absolute path, so the volume has to be where the lake is."""
    said, root = config.snowflake.storage_base_url, from_root(lake, config.snowflake.storage_provider)
    if said and root and said.partition("://")[2].rstrip("/") != root.partition("://")[2].rstrip("/"):
        yield Finding("paths", "[snowflake] storage_base_url", f"the volume is at {said}, and the files are at {root}")


def gate(lake: Lake, config: Config, *, values: bool = False) -> Report:
    """As `check`. Raises GateStoppedError (exit 3) that names what was found: Snowflake is not to be shown this."""
    report = check(lake, config, values=values)
    # A snapshot that was expired is mended by moving on, which is what this gate stands before.
    stopping = [f for f in report.findings if f.rule != "retention"]
    if stopping:
        shown = [str(f) for f in stopping[:SHOWN_MAX]]
        more = len(stopping) - len(shown)
        raise GateStoppedError(
            "what gold published breaks rules that Snowflake has:\n" + "\n".join(shown),
            hint="`lakeward snowflake check` lists them" + (f"; {more} more were found" if more else ""),
        )
    return report


def _retention(live: LiveTable, shown: Mapping[str, int]) -> Iterator[Finding]:
    """Whether the snapshot that Snowflake was last moved to has been expired since."""
    snapshot = shown.get(live.name)
    if snapshot is not None and snapshot not in {s.snapshot_id for s in live.metadata.snapshots}:
        yield Finding("retention", live.name, f"Snowflake stands at snapshot {snapshot}, which was expired")

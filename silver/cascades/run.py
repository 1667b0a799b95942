"""Carries out in silver what foreign keys did to children inside the source's engine, where the binlog lacks it.

Promise: before anything of a run is gated or merged, each child that a cascade reaches has the events that the server
did not log, in bronze's envelope, beside its silver table (`__cascades`): with the parent's place, transaction and
time, after the parent's event and before anything later. From there on they are the child's events like any other, so
its rows, history, row counts and change feed follow, and a replay reads them again. A run that is killed before its
plan is written down plays anew and replaces them; one that is killed later is finished with those that its plan names.

Tables without such keys cost nothing; a parent without a delete or a changed key costs one look at its events.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from bronze.commit import PROPERTIES, ensure_table
from bronze.envelope import SOURCE_ARROW
from lakeward.config import Config
from lakeward.delta import version
from lakeward.foreign_keys import ForeignKey
from lakeward.lake import Lake
from lakeward.names import sql_literal
from lakeward.position import Position
from lakeward.state import BronzeState, BronzeTable, SilverState
from silver.cascades.collate import fold
from silver.cascades.lookup import Member, from_text, of_states, of_triggers, reached, triggers
from silver.cascades.play import Change, Done, Edge, Emptied, Play, Table, Values
from silver.columns import key_numbers
from silver.events import CASCADES, not_before
from silver.plan import RunPlan, TablePlan

log = logging.getLogger(__name__)
_PROPERTIES = {name: value for name, value in PROPERTIES.items() if name != "delta.appendOnly"}


def carry_out(
    spark: SparkSession, lake: Lake, config: Config, bronze: BronzeState, silver: SilverState, plan: RunPlan
) -> RunPlan:
    """`plan` with the cascades of its events, and with the tables that only these touch."""
    keys = references(bronze, plan)
    if not keys:
        return plan
    edges, members = graph(spark, lake, config, bronze, silver, plan, keys)
    found = triggers(spark, lake, members.values(), edges, plan.cut.at)
    if not found.num_rows:
        return plan
    images: dict[str, list[pa.Table]] = {name: [] for name in members}
    done = _play(spark, lake, members, edges, found, images, plan.cut.at)
    by_table: dict[str, list[Done]] = {}
    for one in done:
        by_table.setdefault(one.table, []).append(one)
    joined = {t.name: t for t in plan.tables}
    for name, mine in by_table.items():
        member = members[name]
        stored = _store(spark, lake, member, mine, pa.concat_tables(images[name]), found, silver)
        own = joined.get(name) or _only_cascades(spark, lake, bronze.tables[name], silver)
        joined[name] = replace(own, cascades=stored, cascaded=len(mine), events=own.events + len(mine))
        log.info("silver: %d rows of %s changed by foreign keys", len(mine), name)
    tables = tuple(joined[n] for n in sorted(joined))
    return replace(plan, tables=tables, idle=tuple(n for n in plan.idle if n not in by_table))


def references(bronze: BronzeState, plan: RunPlan) -> list[tuple[str, ForeignKey]]:
    """The foreign keys between tables of the run, each with its child."""
    takes_part = {t.name for t in plan.tables} | {n for n in plan.idle if n in bronze.tables}
    found = []
    for name in sorted(takes_part):
        for doc in bronze.tables[name].foreign_keys or ():
            key = ForeignKey.from_json(doc)
            if str(key.parent) in takes_part:
                found.append((name, key))
    active = {t.name for t in plan.tables}
    fresh = {t.name for t in plan.tables if t.since is None}
    return found if any(str(key.parent) in active or child in fresh for child, key in found) else []


def graph(
    spark: SparkSession,
    lake: Lake,
    config: Config,
    bronze: BronzeState,
    silver: SilverState,
    plan: RunPlan,
    keys: list[tuple[str, ForeignKey]],
) -> tuple[list[Edge], dict[str, Member]]:
    """The foreign keys as edges, and every table at either end of one."""
    plans = {t.name: t for t in plan.tables}
    names = sorted({child for child, _ in keys} | {str(key.parent) for _, key in keys})
    schemas = {n: plans[n].schema if n in plans else bronze.tables[n].schema for n in names}
    numbers = {n: {c.name: i for i, c in enumerate(schemas[n].columns)} for n in names}
    keys = [
        (child, key)
        for child, key in keys
        if numbers[child].keys() >= set(key.columns) and numbers[str(key.parent)].keys() >= set(key.referenced)
    ]
    kept: dict[str, set[int]] = {
        n: set(range(len(s.columns))) if s.counted else set(key_numbers(s)) for n, s in schemas.items()
    }
    for child, key in keys:
        kept[child] |= {numbers[child][c] for c in key.columns}
        kept[str(key.parent)] |= {numbers[str(key.parent)][c] for c in key.referenced}
    order = {n: sorted(k) for n, k in kept.items()}

    def places(name: str, columns: tuple[str, ...]) -> tuple[int, ...]:
        return tuple(order[name].index(numbers[name][c]) for c in columns)

    since = {child: _since(plans.get(child), silver, child) for child, _ in keys}
    edges = [
        Edge(
            number, child, str(key.parent), key, places(child, key.columns), places(str(key.parent), key.referenced),
            tuple(fold(schemas[child].column(c)) for c in key.columns), since[child],
        )
        for number, (child, key) in enumerate(keys)
    ]  # fmt: skip
    members = {}
    for name in names:
        schema, own = schemas[name], plans.get(name)
        wanted = min((e.since for e in edges if e.parent == name), default=None)
        known = silver.tables.get(name)
        version_now = known.cascades if known is not None else -1
        name_of = schema.keys if not schema.counted else tuple(c.name for c in schema.columns)
        table = Table(tuple(order[name]), places(name, name_of), schema.counted)
        reads = _reads(spark, lake, own, bronze.tables[name], silver, wanted, version_now)
        soft = config.table(schema.name).deletes == "soft"
        members[name] = Member(schema, own, table, soft, reads)
    return edges, members


def _since(own: TablePlan | None, silver: SilverState, name: str) -> Position:
    if own is not None:
        return own.since or own.start
    return silver.tables[name].cut


def _reads(
    spark: SparkSession,
    lake: Lake,
    own: TablePlan | None,
    table: BronzeTable,
    silver: SilverState,
    wanted: Position | None,
    cascades: int,
) -> TablePlan | None:
    """What is read of a parent: its part of the run, and what was before where a child has begun since then."""
    if wanted is None:
        return None
    known = silver.tables.get(str(table.name))
    if own is not None and (own.since is None or wanted >= own.since):
        return own
    if own is None and (known is None or wanted >= known.cut):
        return None
    base = own or _only_cascades(spark, lake, table, silver)
    return replace(base, since=wanted, cascades=cascades)


def _only_cascades(spark: SparkSession, lake: Lake, table: BronzeTable, silver: SilverState) -> TablePlan:
    """The part in a run of a table that has no events of its own."""
    known = silver.tables[str(table.name)]
    assert table.start is not None
    return TablePlan(
        schema=table.schema,
        generation=known.generation,
        start=table.start,
        since=known.cut,
        rekeyed=False,
        batch=known.batch,
        bronze_version=version(spark, lake.table("bronze", table.name)),
        truncated=False,
        version=known.version,
    )


def _play(
    spark: SparkSession,
    lake: Lake,
    members: Mapping[str, Member],
    edges: list[Edge],
    found: pa.Table,
    images: dict[str, list[pa.Table]],
    cut: Position,
) -> list[Done]:
    """Play, look up the rows that the keys it came upon may reach, and play again, until it comes upon no new key.

    `images` takes the rows that were looked up, by table."""
    causes = of_triggers(found)
    tables = {name: member.table for name, member in members.items()}
    looked: dict[int, set[tuple[str, ...]]] = {e.number: set() for e in edges}
    known: dict[str, set[Values]] = {name: set() for name in members}
    rows: list[Change] = []
    events: list[Change | Emptied] = []
    while True:
        play = Play(tables, edges)
        done = play.run(rows, [*events, *causes])
        wanted: dict[str, dict[Edge, set[tuple[str, ...]]]] = {}
        for edge in edges:
            if new := play.fired[edge.number] - looked[edge.number]:
                wanted.setdefault(edge.child, {})[edge] = new
                looked[edge.number] |= new
        if not wanted:
            return done
        for name, keys in wanted.items():
            table = reached(spark, lake, members[name], keys, cut)
            first = sum(t.num_rows for t in images[name])
            images[name].append(table.select(["image"]))
            base, changed = of_states(members[name], table, first)
            here = {c: tables[name].named(c.values) for c in (*base, *changed) if isinstance(c, Change)}
            rows += [c for c in base if here[c] not in known[name]]
            events += [c for c in changed if isinstance(c, Emptied) or here[c] not in known[name]]
            known[name].update(here.values())


def _store(
    spark: SparkSession,
    lake: Lake,
    member: Member,
    done: list[Done],
    images: pa.Table,
    causes: pa.Table,
    silver: SilverState,
) -> int:
    """Write the cascades of one child down, in the place of any that a killed run left. The table's version then."""
    schema = member.schema
    location = lake.table("silver", schema.name, CASCADES)
    made = ensure_table(spark, location, schema, _PROPERTIES)
    known = silver.tables.get(member.name)
    if made != "created" and silver.cut is not None and (known is None or version(spark, location) != known.cascades):
        DeltaTable.forPath(spark, location).delete(not_before(silver.cut.at))
    shape: Any = spark.read.format("delta").load(location).schema
    numbers = {c.name: i for i, c in enumerate(schema.columns)}
    touched = sorted({i for d in done for i in (*d.before, *(d.after or ()))})
    columns: dict[str, Any] = {
        "image": images["image"].take(pa.array([d.image for d in done])),
        "gone": pa.array([d.after is None for d in done]),
        "cascade": pa.array([d.number for d in done], pa.int64()),
        **{n: causes[n].take(pa.array([d.origin for d in done])) for n in ("ts_ms", "source", "transaction")},
    }
    for i in touched:
        for name, overlays in (("b", [d.before for d in done]), ("a", [d.after or {} for d in done])):
            columns[f"{name}{i}"] = pa.array([o.get(i) for o in overlays], pa.string())
            columns[f"{name}{i}_told"] = pa.array([i in o for o in overlays])

    def side(name: str) -> str:
        fields = []
        for told in shape["before"].dataType.names:  # a column that has gone from the source stays there
            i = numbers.get(told, -1)
            value = f"image.c{i}" if i >= 0 else "NULL"
            if i in touched:
                value = f"IF({name}{i}_told, {from_text(schema.columns[i], f'{name}{i}')}, {value})"
            fields.append(f"{sql_literal(told)}, {value}")
        return f"named_struct({', '.join(fields)})"

    own = {"absent": "NULL", "before_absent": "NULL", "cascade": "cascade"}
    source = ", ".join(f"'{f.name}', {own.get(f.name, f'source.{f.name}')}" for f in SOURCE_ARROW)
    frame = spark.createDataFrame(pa.table(columns)).selectExpr(
        "IF(gone, 'd', 'u') AS op",
        f"{side('b')} AS before",
        f"IF(gone, NULL, {side('a')}) AS after",
        "ts_ms",
        f"named_struct({source}) AS source",
        "transaction",
    )
    typed = frame.select(*(frame[f.name].cast(f.dataType).alias(f.name) for f in shape.fields))
    typed.write.format("delta").mode("append").save(location)
    return version(spark, location)

"""Whether a mart can be computed by its keys: asked of the query's text, before anything runs.

`gold.incremental` runs the query over those rows of the changed tables alone that belong to a touched key. That says
the same as the whole query where each row of the mart depends on rows of its own key and of no other. It is so, of a
changed table that stands once in the outermost FROM,

- where the key that the query makes of a combination of rows is the one that `-- changed:` says of the table's row:
  the same expression, or one that a join or WHERE holds equal to it;
- where the table is to the right of a LEFT JOIN, moreover, if that key is made of the tables before it: else a row
  whose partners are left out would pass for one that has none;
- and nothing looks past the key: no window over several keys, no LIMIT, sample, ROLLUP, random value or clock.

What breaks the rule is refused with the remedy. A key that cannot be shown to be the declared one is no error: such a
mart is computed as a whole, with a warning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from sqlglot import exp, parse_one

from lakeward.errors import ConfigError
from lakeward.names import TableName

# fmt: off
_UNSTEADY = frozenset((
    "rand", "randn", "random", "randstr", "uniform", "uuid", "shuffle", "now", "curdate", "getdate",
    "current_timestamp", "current_date", "current_time", "localtimestamp", "monotonically_increasing_id",
    "spark_partition_id", "input_file_name", "input_file_block_start", "input_file_block_length",
))
# fmt: on
Equality = tuple[exp.Expr, exp.Expr]


def check(
    query: exp.Query,
    named: Mapping[int, TableName],
    changed: Mapping[TableName, Sequence[str]],
    keys: Sequence[str],
    file: Path,
) -> str | None:
    """Why the mart is computed as a whole although its tables are named rightly; None where it need not be.

    `named` says which table a name in the SQL is, by the place at which it begins. Raises ConfigError for a query whose
    rows depend on rows of other keys.
    """
    return _Check(query, named, changed, keys, file).reason()


class _Check:
    def __init__(
        self,
        query: exp.Query,
        named: Mapping[int, TableName],
        changed: Mapping[TableName, Sequence[str]],
        keys: Sequence[str],
        file: Path,
    ) -> None:
        self.changed, self.keys, self.file = changed, keys, file
        self.query = query.unnest()
        self.joins: list[exp.Join] = self.query.args.get("joins") or []
        first = self.query.args["from_"].this if self.query.args.get("from_") else exp.Table()
        self.sources = [first, *(j.this for j in self.joins)]
        self.aliases = [s.alias_or_name.lower() for s in self.sources]
        self.nodes: dict[TableName, list[exp.Table]] = {}
        for table in self.query.find_all(exp.Table):
            first = next((p for p in table.parts if isinstance(p, exp.Identifier)), None)
            name = named.get(int(first.meta["start"])) if first is not None and "start" in first.meta else None
            if name is not None and name in changed:
                self.nodes.setdefault(name, []).append(table)

    def reason(self) -> str | None:
        self._unsteady()
        if not isinstance(self.query, exp.Select):
            raise self._refused("its tables stand in a UNION or another set operation")
        self._whole_result()
        for table in self.changed:
            self._place(table)
        made = [self._made(key) for key in self.keys]
        self._windows(made)
        for table, expressions in self.changed.items():
            for key, found, text in zip(self.keys, made, expressions, strict=True):
                if doubt := self._doubt(table, key, found, text):
                    return doubt
        return None

    def _refused(self, what: str, where: exp.Expr | None = None) -> ConfigError:
        place = f": {_shortened(where)}" if where is not None else ""
        return ConfigError(
            f"{self.file}: a mart of this form cannot be computed by its keys, since {what}{place}",
            hint="write -- materialized: table, or mend the query",
        )

    def _unsteady(self) -> None:
        texts = (parse_one(t, read="spark") for expressions in self.changed.values() for t in expressions)
        for tree in (self.query, *texts):
            for call in tree.find_all(exp.Func):
                name = call.name if isinstance(call, exp.Anonymous) else call.sql_name()
                if name.lower() in _UNSTEADY:
                    raise self._refused("rows that were computed at other times would have other values", call)
            if sample := tree.find(exp.TableSample):
                raise self._refused("a sample of fewer rows is another one", sample)

    def _whole_result(self) -> None:
        """What the query does to its result as a whole, or to rows without a partner."""
        for clause in ("limit", "offset"):
            if found := self.query.args.get(clause):
                raise self._refused("it is cut off after so many rows, of whatever key", found)
        distinct, group = self.query.args.get("distinct"), self.query.args.get("group")
        if distinct is not None and distinct.args.get("on"):
            raise self._refused("one row is chosen among those of several keys", distinct)
        if group is not None and group.find(exp.Rollup, exp.Cube, exp.GroupingSets):
            raise self._refused("its totals are over several keys", group)
        for join in self.joins:
            if (join.side or "").upper() in ("RIGHT", "FULL"):
                raise self._refused("a row would lose its partners of other keys (turn it into a LEFT JOIN)", join)
        for source in self.sources:
            if source.args.get("pivots"):
                raise self._refused("a pivot groups the rows of several keys", source)

    def _place(self, table: TableName) -> None:
        nodes = self.nodes[table]
        if len(nodes) > 1:
            raise self._refused(f"{table}, a table of `-- changed:`, stands in it {len(nodes)} times")
        at = next((i for i, source in enumerate(self.sources) if source is nodes[0]), None)
        if at is None:
            around = nodes[0].find_ancestor(exp.SetOperation, exp.CTE, exp.Subquery, exp.Exists, exp.In)
            raise self._refused(f"{table}, a table of `-- changed:`, does not stand in the outermost FROM", around)
        if at and (self.joins[at - 1].kind or "").upper() in ("SEMI", "ANTI"):
            raise self._refused(
                f"{table}, a table of `-- changed:`, decides on rows of other tables", self.joins[at - 1]
            )

    def _made(self, key: str) -> exp.Expr | None:
        """What the query makes the key of; None where it cannot be told."""
        starred = None
        for projection in self.query.expressions:
            if projection.alias_or_name.lower() == key.lower():
                return projection.unalias() if not projection.find(exp.Query) else None
            if projection.is_star and starred is None:
                starred = projection
        if starred is None:
            return None
        return exp.column(key, table=starred.table if isinstance(starred, exp.Column) else None)

    def _windows(self, made: Sequence[exp.Expr | None]) -> None:
        own = {w.name.lower(): w for w in self.query.args.get("windows") or []}
        equal = self._equalities(None)
        for window in self.query.find_all(exp.Window):
            if window.parent_select is not self.query or window.parent is self.query:
                continue
            over = (
                own.get(window.alias.lower(), window)
                if window.alias and not window.args.get("partition_by")
                else window
            )
            parts = {self._plain(p) for p in over.args.get("partition_by") or []}
            for key, found in zip(self.keys, made, strict=True):
                if found is None or not parts & self._reached(found, equal):
                    raise self._refused(f"a window without PARTITION BY {key} looks at rows of other keys", window)

    def _doubt(self, table: TableName, key: str, found: exp.Expr | None, text: str) -> str | None:
        at = next(i for i, source in enumerate(self.sources) if source is self.nodes[table][0])
        alias, said = self.aliases[at], parse_one(text, read="spark")
        columns = {c.name.lower() for c in said.find_all(exp.Column)}
        wanted = self._plain(said, alias, columns)
        join = self.joins[at - 1] if at else None
        optional = join is not None and (join.side or "").upper() == "LEFT"
        if found is not None:
            equal = self._equalities(join if optional else None, without=alias if optional else None)
            reached = self._reached(found, equal, alias, columns)
            before = set(self.aliases[:at])
            if wanted in reached and not (optional and self._tables(found) - before):
                return None
        if optional:
            raise self._refused(
                f"{table} may have no row for the tables before it, and {key} is not seen to be made of their columns "
                f"(each with its table's alias) and to equal {text}",
                join,
            )
        return f"its query is not seen to make {key} of {table} as `-- changed:` says: {text}"

    def _equalities(self, own: exp.Join | None, without: str | None = None) -> list[Equality]:
        """What is equal in every combination of rows; in those that the join `own` has found a row for, by it too."""
        conditions = [j.args.get("on") for j in self.joins if not j.side and (j.kind or "") in ("", "INNER", "CROSS")]
        if where := self.query.args.get("where"):
            conditions.append(where.this)
        found = [e for c in conditions for e in _conjuncts(c)]
        if without is not None:  # what says of a row that is there can also be true where there is none
            found = [e for e in found if not self._tables(e) & {without, ""}]
        if own is not None:
            found += _conjuncts(own.args.get("on"))
        return [(e.left, e.right) for e in found if isinstance(e, (exp.EQ, exp.NullSafeEQ)) and not e.find(exp.Query)]

    def _reached(
        self, start: exp.Expr, equal: Sequence[Equality], alias: str = "", columns: set[str] | None = None
    ) -> set[str]:
        """The expressions, plain, that are equal to `start`."""
        pairs = [(self._plain(a, alias, columns), self._plain(b, alias, columns)) for a, b in equal]
        reached = {self._plain(start, alias, columns)}
        while more := {y for a, b in pairs for x, y in ((a, b), (b, a)) if x in reached} - reached:
            reached |= more
        return reached

    def _plain(self, tree: exp.Expr, alias: str = "", columns: set[str] | None = None) -> str:
        """The expression's text, the same for the same meaning: in lower case, and each column with its table.

        A bare column is of `alias` where it is one of `columns`, which that table has: of two tables it would be
        ambiguous, and refused by Spark.
        """
        only = self.aliases[0] if len(self.aliases) == 1 and not self.query.args.get("laterals") else None

        def of_table(node: exp.Expr) -> exp.Expr:
            if isinstance(node, exp.Column):
                name = node.name.lower()
                table = node.table.lower() or (alias if columns and name in columns else only)
                return exp.column(name, table=table or None, quoted=True)
            return node

        return tree.unnest().transform(of_table).sql(dialect="spark", comments=False)

    def _tables(self, tree: exp.Expr) -> set[str]:
        """The tables that the expression is of; an empty name for a column that bears none."""
        return {c.table.lower() for c in tree.find_all(exp.Column)}


def _conjuncts(condition: exp.Expr | None) -> list[exp.Expr]:
    return list(_flat(condition)) if condition is not None else []


def _flat(condition: exp.Expr) -> Iterator[exp.Expr]:
    condition = condition.unnest()
    if isinstance(condition, exp.And):
        yield from _flat(condition.left)
        yield from _flat(condition.right)
    else:
        yield condition


def _shortened(tree: exp.Expr) -> str:
    text = tree.sql(dialect="spark", comments=False)
    return text if len(text) <= 80 else f"{text[:79]}…"

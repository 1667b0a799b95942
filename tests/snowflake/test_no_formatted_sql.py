"""No SQL is made by formatting values: what is put into a statement comes out of a function that quotes or checks it.

The syntax tree of every module is read. A string that begins like a statement may hold only constants and what the
quoting functions of `lakeward.names` and `snowflake.lakehouse.template` return, by whatever name it is carried there.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("snowflake", "lakeward", "bronze", "silver", "gold")
# Statements there are put together across functions, of constants, of types that a schema has checked, or are advice
# for a person to read: more than this reader follows. None of them is sent to Snowflake.
LEFT = {
    *(f"lakeward/{name}.py" for name in ("class_archive", "delta", "rowfilter", "cli/hints")),
    *(f"lakeward/embedded/{name}.py" for name in ("demo/load", "demo/traffic", "options", "replicator", "source")),
    *(f"bronze/{name}.py" for name in ("commit", "rowfilter", "snapshot/bounds", "snapshot/select")),
    *(f"bronze/source/{name}.py" for name in ("catalog", "foreign_keys", "preflight", "server", "tables_preflight")),
    *("silver/delta.py", "gold/iceberg.py", "gold/incremental.py", "gold/maintenance.py", "gold/marts.py"),
}
FILES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
MODULES = [path for path in FILES if str(path.relative_to(ROOT)) not in LEFT]
QUOTING = {
    *("snowflake_identifier", "spark_identifier", "mysql_identifier", "sql_literal", "qualified", "literals"),
    *("literal_name", "relative_path", "storage_url", "stage_path", "sql_type", "keyword", "secret"),
}
HOMES = ("lakeward.names", "snowflake.lakehouse.template")  # only what comes from here quotes
STATEMENT = re.compile(
    r"\s*(SELECT|INSERT INTO|INSERT OVERWRITE|UPDATE|DELETE FROM|MERGE INTO|CREATE|ALTER|DROP|UNDROP|COPY INTO|PUT"
    r"|GET|SHOW|DESC|DESCRIBE|GRANT|REVOKE|USE|WITH|CALL|EXECUTE|REMOVE|RM|LIST|LS|TRUNCATE|EXPLAIN|SET|UNSET"
    r"|COMMENT ON)\s",
    re.IGNORECASE,
)
CUTTING = ("strip", "lstrip", "rstrip", "removeprefix", "removesuffix", "upper", "lower")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Reader:
    """What is known of a module's names: each is as safe as all that is ever assigned to it in its function."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.known: dict[tuple[str, ast.AST], list[ast.expr]] = {}
        self.functions = {f.name: f for f in ast.walk(tree) if isinstance(f, FUNCTIONS)}
        self.outside = [node for node in tree.body if not isinstance(node, (*FUNCTIONS, ast.ClassDef))]
        self.quoting = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module in HOMES
            for alias in node.names
            if alias.name in QUOTING
        }
        self.modules = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
            if f"{node.module}.{alias.name}" in HOMES
        }

    def given(self, name: str, within: ast.AST) -> list[ast.expr]:
        """All that is assigned to a name, where it is not a constant in the module's own lines."""
        if (name, within) in self.known:
            return self.known[name, within]
        found = list(_assigned(name, within))
        if not found and within is not self.tree:
            found = [value for node in self.outside for value in _assigned(name, node)]
        self.known[name, within] = found
        return found

    def safe(self, node: ast.expr, within: ast.AST, depth: int = 0) -> bool:
        if depth > 40:
            return False
        again = lambda n, w=within: self.safe(n, w, depth + 1)  # noqa: E731
        match node:
            case ast.Constant():
                return True
            case ast.JoinedStr():
                return all(again(v) for v in node.values)
            case ast.FormattedValue(format_spec=ast.JoinedStr(values=[ast.Constant(value="d")])):
                return True
            case ast.FormattedValue():
                return again(node.value)
            case ast.BinOp(op=ast.Add() | ast.Mod()):
                return again(node.left) and again(node.right)
            case ast.IfExp():
                return again(node.body) and again(node.orelse)
            case ast.List() | ast.Tuple() | ast.Set():
                return all(again(e) for e in node.elts)
            case ast.Dict():
                return all(again(v) for v in node.values)
            case ast.Starred():
                return again(node.value)
            case ast.ListComp() | ast.GeneratorExp() | ast.SetComp():
                return again(node.elt)
            case ast.DictComp():
                return again(node.value)
            case ast.Subscript():  # a part of what is safe, cut out of its brackets
                return again(node.value)
            case ast.Attribute(value=ast.Name(id="target"), attr="name"):
                return True  # Target.name is `qualified`
            case ast.Call(func=ast.Attribute(attr="join" | "format" | "get" | "replace", value=of), args=args):
                return again(of) and all(again(a) for a in [*args, *(k.value for k in node.keywords)])
            case ast.Call(func=ast.Attribute(attr=name, value=of), args=[]) if name in CUTTING:
                return again(of)
            case ast.Call(func=ast.Name(id="zip" | "sorted" | "list" | "tuple"), args=args):
                return all(again(a) for a in args)
            case ast.Call(func=ast.Name(id="range" | "len")):
                return True
            case ast.Call(func=ast.Name(id=name)) if name in self.quoting:
                return True
            case ast.Call(func=ast.Attribute(value=ast.Name(id=module), attr=name)):
                return module in self.modules and name in QUOTING
            case ast.Call(func=ast.Name(id=name)) if name in self.functions:
                of_function = self.functions[name]
                returned = [r.value for r in ast.walk(of_function) if isinstance(r, ast.Return) and r.value]
                return bool(returned) and all(again(r, of_function) for r in returned)
            case ast.Name(id=name):
                if isinstance(within, FUNCTIONS) and name in _parameters(within):
                    return False
                found = self.given(name, within)
                return bool(found) and all(again(g) for g in found)
        return False

    def leading(self, node: ast.expr, within: ast.AST, depth: int = 0) -> str:
        """What a string begins with, as far as it is written down."""
        if depth > 20:
            return ""
        again = lambda n: self.leading(n, within, depth + 1)  # noqa: E731
        match node:
            case ast.Constant(value=str(text)):
                return text
            case ast.JoinedStr(values=[first, *_]):
                return again(first)
            case ast.FormattedValue(value=value):
                return again(value)
            case ast.BinOp(op=ast.Add() | ast.Mod(), left=left):
                return again(left)
            case ast.IfExp(body=body):
                return again(body)
            case ast.List(elts=[first, *_]) | ast.Tuple(elts=[first, *_]):
                return again(first)
            case ast.Call(func=ast.Attribute(attr="join", value=between), args=[parts]):
                return again(parts) + again(between)
            case ast.Call(func=ast.Attribute(value=of)):
                return again(of)
            case ast.Name(id=name):
                found = self.given(name, within)
                return next((text for g in found if (text := again(g))), "")
        return ""


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    of = function.args
    return {a.arg for a in (*of.posonlyargs, *of.args, *of.kwonlyargs, of.vararg, of.kwarg) if a is not None}


def _assigned(name: str, within: ast.AST) -> Iterator[ast.expr]:
    """All that is given to `name` in a function."""
    for node in ast.walk(within):
        pairs: list[tuple[ast.expr, ast.expr]] = []
        if isinstance(node, ast.Assign):
            pairs = [(t, node.value) for t in node.targets]
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign)) and node.value is not None:
            pairs = [(node.target, node.value)]
        elif isinstance(node, (ast.For, ast.comprehension)):
            pairs = [(node.target, node.iter)]
        elif isinstance(node, ast.NamedExpr):
            pairs = [(node.target, node.value)]
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "append"
            and node.args
        ):
            pairs = [(node.func.value, node.args[0])]
        for target, value in pairs:
            if isinstance(target, ast.Name) and target.id == name:
                yield value
            elif isinstance(target, ast.Tuple):
                whole = isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts)
                for i, part in enumerate(target.elts):
                    if isinstance(part, ast.Name) and part.id == name:
                        yield value.elts[i] if whole and isinstance(value, ast.Tuple) else value


def _built(node: ast.AST) -> bool:
    """Whether the string is put together, and not written down."""
    match node:
        case ast.JoinedStr():
            return len(node.values) > 1
        case ast.BinOp(op=ast.Mod() | ast.Add()):
            return True
        case ast.Call(func=ast.Attribute(attr="format" | "join" | "replace" | "format_map")):
            return True
    return False


def _scopes(reader: Reader) -> Iterator[tuple[ast.AST, Iterator[ast.AST]]]:
    """Each function, and the module's own lines and its classes', with what stands in it."""
    for function in ast.walk(reader.tree):
        if isinstance(function, FUNCTIONS):
            yield function, ast.walk(function)
    classes = [n for c in ast.walk(reader.tree) if isinstance(c, ast.ClassDef) for n in c.body]
    for node in [*reader.outside, *(n for n in classes if not isinstance(n, FUNCTIONS))]:
        yield reader.tree, ast.walk(node)


def unsafe(source: str) -> list[int]:
    """The lines of strings that begin like a statement and hold what nothing has quoted."""
    reader = Reader(ast.parse(source))
    prose = {n for k in ast.walk(reader.tree) if isinstance(k, ast.keyword) and k.arg == "hint" for n in ast.walk(k)}
    found = []
    for scope, nodes in _scopes(reader):
        for node in nodes:
            if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
                begun, whole = reader.leading(node.target, scope), node.value
            elif isinstance(node, ast.expr) and _built(node):
                begun, whole = reader.leading(node, scope), node
            else:
                continue
            if node not in prose and STATEMENT.match(begun) and not reader.safe(whole, scope):
                found.append(node.lineno)
    return sorted(set(found))


@pytest.mark.parametrize("module", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_statement_holds_a_value_that_nothing_quoted(module):
    assert unsafe(module.read_text()) == []


def test_what_is_left_out_is_there_and_is_not_snowflakes():
    assert {str(path.relative_to(ROOT)) for path in FILES} >= LEFT
    assert [name for name in LEFT if name.startswith("snowflake/")] == []


IMPORT = "from lakeward.names import snowflake_identifier as quoted\n"


@pytest.mark.parametrize(
    "line",
    [
        'f"SELECT * FROM {table}"',
        'f"select * from {table}"',
        'f"WITH x AS (SELECT 1) SELECT * FROM {table}"',
        'f"CALL {table}()"',
        'f"REMOVE @{table}"',
        'f"LIST @{table}"',
        'f"TRUNCATE TABLE {table}"',
        'f"DESCRIBE TABLE {table}"',
        'f"EXECUTE IMMEDIATE {table}"',
        '"DELETE FROM t WHERE a = %s" % table',
        '"DROP TABLE " + table',
        '"GRANT SELECT ON {} TO ROLE r".format(table)',
        '"GRANT SELECT ON {t} TO ROLE r".format(t=table)',
        '"DROP TABLE t".replace("t", table)',
        '" ".join(["DROP TABLE", table])',
        '"".join(("DROP TABLE ", quoted(table), table))',
        'f"DROP TABLE {table.strip()}"',
        'f"DROP TABLE {other.quoted(table)}"',
        'f"DROP TABLE {sql_literal(table)}"',
        "f\"ALTER TABLE {quoted(table)} ADD COLUMN {', '.join(c for c in table)}\"",
    ],
)
def test_the_reader_sees_a_value_that_is_formatted_in(line):
    assert unsafe(f"{IMPORT}def f(table):\n    return {line}\n") == [3]
    assert unsafe(f"{IMPORT}class C:\n    async def f(self, table):\n        return {line}\n") == [4]
    assert unsafe(f"{IMPORT}def g():\n    pass\ntable = input()\nSQL = {line}\n") == [5]


@pytest.mark.parametrize(
    "body",
    [
        'sql = "DROP TABLE "\n    sql += table',
        'sql: str = "DROP TABLE "\n    sql += f"{table}"',
        'start = "DROP TABLE"\n    sql = f"{start} {table}"',
        'name = table\n    sql = f"DROP TABLE {name}"',
        'name = quoted(table)\n    name += table\n    sql = f"DROP TABLE {name}"',
    ],
)
def test_the_reader_follows_a_statement_that_grows(body):
    assert unsafe(f"{IMPORT}def f(table):\n    {body}\n    return sql\n") == [body.count("\n") + 3]


@pytest.mark.parametrize(
    "body",
    [
        "name = quoted(table)\n    return f'SELECT * FROM {name}'",
        "sql = 'DROP TABLE '\n    sql += quoted(table)\n    return sql",
        "return ' '.join(['DROP TABLE', quoted(table)])",
        "return f'SELECT * FROM t LIMIT {table:d}'",
        "return f'selected {table}'",
    ],
)
def test_the_reader_accepts_what_is_quoted(body):
    assert unsafe(f"{IMPORT}def f(table):\n    {body}\n") == []

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
MODULES = [*(ROOT / "snowflake" / "lakehouse").rglob("*.py"), ROOT / "lakeward" / "cli" / "snowflake.py"]
QUOTING = {
    *("snowflake_identifier", "quoted", "sql_literal", "qualified", "literals", "literal_name", "relative_path"),
    *("storage_url", "stage_path", "sql_type", "keyword", "secret", "_name"),
}
STATEMENT = re.compile(
    r"\s*(SELECT|INSERT INTO|UPDATE|DELETE FROM|MERGE INTO|CREATE|ALTER|DROP|COPY INTO|PUT|SHOW|DESC|GRANT|REVOKE|USE) "
)


class Reader:
    """What is known of a module's names: each is as safe as all that is ever assigned to it in its function."""

    def __init__(self, tree: ast.Module) -> None:
        self.functions = {f.name: f for f in ast.walk(tree) if isinstance(f, ast.FunctionDef)}
        self.constants = {
            target.id
            for node in tree.body
            if isinstance(node, ast.Assign)
            for name in node.targets
            for target in ([name] if isinstance(name, ast.Name) else getattr(name, "elts", []))
        }

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
            case ast.BinOp(op=ast.Add()):
                return again(node.left) and again(node.right)
            case ast.IfExp():
                return again(node.body) and again(node.orelse)
            case ast.List() | ast.Tuple():
                return all(again(e) for e in node.elts)
            case ast.ListComp() | ast.GeneratorExp():
                return again(node.elt)
            case ast.Subscript(value=ast.Subscript() as inner):
                return again(inner)
            case ast.Subscript(value=ast.Name(id=name)) if name in self.constants and name.isupper():
                return True
            case ast.Subscript():  # a part of what is safe, cut out of its brackets
                return again(node.value)
            case ast.Attribute(value=ast.Name(id="target"), attr="name"):
                return True  # Target.name is `qualified`
            case ast.Call(func=ast.Attribute(attr="join" | "format" | "get", value=of), args=args):
                return again(of) and all(again(a) for a in args)
            case ast.Call(func=ast.Name(id="zip"), args=args):
                return all(again(a) for a in args)
            case ast.Call(func=ast.Name(id="range")):
                return True
            case ast.Call(func=ast.Name(id=name)) if name in QUOTING:
                return True
            case ast.Call(func=ast.Attribute(attr=name)) if name in QUOTING:
                return True
            case ast.Call(func=ast.Name(id=name)) if name in self.functions:
                of_function = self.functions[name]
                returned = [r.value for r in ast.walk(of_function) if isinstance(r, ast.Return) and r.value]
                return bool(returned) and all(again(r, of_function) for r in returned)
            case ast.Name(id=name):
                if name in self.constants and name.isupper():
                    return True
                given = list(_assigned(name, within))
                return bool(given) and all(again(g) for g in given)
        return False


def _assigned(name: str, within: ast.AST) -> Iterator[ast.expr]:
    """All that is given to `name` in a function."""
    for node in ast.walk(within):
        pairs: list[tuple[ast.expr, ast.expr]] = []
        if isinstance(node, ast.Assign):
            pairs = [(t, node.value) for t in node.targets]
        elif isinstance(node, (ast.For, ast.comprehension)):
            pairs = [(node.target, node.iter)]
        elif isinstance(node, ast.NamedExpr):
            pairs = [(node.target, node.value)]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append":
            pairs = [(node.func.value, node.args[0])]
        for target, value in pairs:
            if isinstance(target, ast.Name) and target.id == name:
                yield value
            elif isinstance(target, ast.Tuple):
                whole = isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts)
                for i, part in enumerate(target.elts):
                    if isinstance(part, ast.Name) and part.id == name:
                        yield value.elts[i] if whole and isinstance(value, ast.Tuple) else value


def _built(node: ast.expr) -> bool:
    """Whether the string is put together, and not written down."""
    match node:
        case ast.JoinedStr():
            return len(node.values) > 1
        case ast.BinOp(op=ast.Mod() | ast.Add()):
            return True
        case ast.Call(func=ast.Attribute(attr="format")):
            return True
    return False


def unsafe(source: str) -> list[int]:
    """The lines of strings that begin like a statement and hold what nothing has quoted."""
    tree = ast.parse(source)
    reader = Reader(tree)
    found = []
    functions: list[ast.AST] = [f for f in ast.walk(tree) if isinstance(f, ast.FunctionDef)] or [tree]
    for function in functions:
        for node in ast.walk(function):
            if not isinstance(node, ast.expr) or not _built(node):
                continue
            first = next((n.value for n in ast.walk(node) if isinstance(n, ast.Constant)), "")
            if isinstance(first, str) and STATEMENT.match(first) and not reader.safe(node, function):
                found.append(node.lineno)
    return sorted(set(found))


@pytest.mark.parametrize("module", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_statement_holds_a_value_that_nothing_quoted(module):
    assert unsafe(module.read_text()) == []


@pytest.mark.parametrize(
    "line",
    [
        'f"SELECT * FROM {table}"',
        '"DELETE FROM t WHERE a = %s" % table',
        '"DROP TABLE " + table',
        '"GRANT SELECT ON {} TO ROLE r".format(table)',
        "f\"ALTER TABLE {qualified(table)} ADD COLUMN {', '.join(c for c in table)}\"",
    ],
)
def test_the_reader_sees_a_value_that_is_formatted_in(line):
    assert unsafe(f"def f(table):\n    return {line}\n") == [2]
    assert unsafe("def f(table):\n    name = quoted(table)\n    return f'SELECT * FROM {name}'\n") == []

"""GTID sets against plain Python sets of (uuid, tag, number)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bronze.binlog.gtid import GtidPosition, GtidSet
from lakeward.errors import TerminalError

A, B = "0a000000-0000-0000-0000-00000000000a", "0b000000-0000-0000-0000-00000000000b"
gtids = st.sets(st.tuples(st.sampled_from((A, B)), st.sampled_from(("", "x", "y_1")), st.integers(1, 12)))


def of(members):
    result = GtidSet()
    for uuid, tag, number in members:
        result.add(uuid, number, tag)
    return result


@given(gtids)
def test_a_gtid_set_reads_back_what_it_prints(members):
    printed = str(of(members))
    assert GtidSet(printed) == of(members)
    assert str(GtidSet(printed)) == printed


@given(gtids, gtids)
def test_union_difference_and_containment_are_those_of_sets(left, right):
    assert of(left).union(of(right)) == of(left | right)
    assert of(left).subtract(of(right)) == of(left - right)
    assert of(left).contains(of(right)) == (right <= left)


@given(gtids, gtids)
def test_operations_leave_their_operands_alone(left, right):
    one, other = of(left), of(right)
    one.union(other)
    one.subtract(other)
    assert (one, other) == (of(left), of(right))


@given(st.permutations([(A, "", n) for n in range(1, 8)]))
def test_the_order_of_additions_does_not_show(members):
    assert str(of(members)) == f"{A}:1-7"


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        (f"{A.upper()}:1-3:5,\n{B}:7", f"{A}:1-3:5,{B}:7"),
        (f"{B}:7,{A}:4:1-3", f"{A}:1-4,{B}:7"),
        (f"{A}:tag:1:2,{A}:9", f"{A}:9:tag:1-2"),
        (f"{A}:1:y:1:x:3", f"{A}:1:x:3:y:1"),
        (A.replace("-", "") + ":1", f"{A}:1"),
        ("", ""),
    ],
)
def test_a_gtid_set_prints_as_the_server_prints_it(text, normal):
    assert str(GtidSet(text)) == normal


@pytest.mark.parametrize("text", ["x", f"{A}", f"{A}:", f"{A}:0", f"{A}:3-2", f"{A}:1-", "0-1-2"])
def test_text_that_is_no_gtid_set_is_refused(text):
    with pytest.raises(TerminalError):
        GtidSet(text)


def test_a_mariadb_position_keeps_the_last_of_each_domain():
    position = GtidPosition("1-5-9,0-1-2")
    position.add(0, 7, 3)
    assert str(position) == "0-7-3,1-5-9"
    assert position.contains(GtidPosition("0-1-3"))
    assert not position.contains(GtidPosition("0-1-4"))
    assert not position.contains(GtidPosition("2-1-1"))
    with pytest.raises(TerminalError):
        GtidPosition(f"{A}:1")


def test_a_gtid_set_is_as_the_server_calculates_it(mysql_server):
    with mysql_server.admin() as connection, connection.cursor() as cursor:
        for left, right in [
            (f"{A}:1-10:20-30:x:4-5,{B}:1", f"{A}:3:9-21:x:5,{B}:1-2"),
            (f"{A}:1-10", f"{B}:1-10"),
            (f"{A}:y:1:x:1-3,{B}:y:9", f"{A}:1:x:2"),
        ]:
            cursor.execute("SELECT GTID_SUBTRACT(%s, %s), GTID_SUBSET(%s, %s)", (left, right, right, left))
            subtracted, subset = cursor.fetchone()
            assert str(GtidSet(left).subtract(GtidSet(right))) == subtracted.replace("\n", "")
            assert GtidSet(left).contains(GtidSet(right)) == bool(subset)

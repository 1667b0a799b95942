"""Names in paths and in catalogs: any name goes there and back, and no two of them meet."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from lakeward.names import decode_path, encode_lower, encode_path

NAMES = st.text(alphabet=st.characters(codec="utf-8")) | st.text(alphabet="Tt-_4d.`/\\ é")


@given(NAMES)
def test_a_name_comes_back_from_a_path(name):
    assert re.fullmatch(r"[A-Za-z0-9_-]*", encode_path(name))
    assert decode_path(encode_path(name)) == name


@given(NAMES)
def test_a_name_comes_back_from_a_catalog_that_folds_case(name):
    """So that names that differ by case alone are two there."""
    assert re.fullmatch(r"[a-z0-9_-]*", encode_lower(name))
    assert decode_path(encode_lower(name)) == name

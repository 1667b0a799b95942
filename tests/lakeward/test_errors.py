"""What is asked of an error and of those that it came from."""

from __future__ import annotations

from lakeward.errors import TerminalError, causes
from lakeward.lake import disk_full


def test_an_error_that_was_raised_from_itself_is_asked_once():
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    assert list(causes(first)) == [first, second]
    first.__cause__ = first
    assert list(causes(first)) == [first]
    assert disk_full(first) is None


def test_a_full_disk_is_found_behind_what_was_made_of_it():
    failed = RuntimeError("a job failed")
    failed.__cause__ = OSError("No space left on device")
    assert isinstance(disk_full(failed), TerminalError)

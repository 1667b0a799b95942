"""What a preflight finds: one value, so that the checks of the server and of the tables speak alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """`remedy` is the exact SQL statement, configuration line or action that mends it."""

    level: Literal["error", "warning"]
    what: str
    remedy: str


def error(what: str, remedy: str) -> Finding:
    return Finding("error", what, remedy)


def warning(what: str, remedy: str) -> Finding:
    return Finding("warning", what, remedy)

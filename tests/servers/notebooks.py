"""What the notebooks hold, for tests that run them."""

from __future__ import annotations

import json
from pathlib import Path

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"


def cells(name: str) -> str:
    """The code of a notebook, in the order of its cells."""
    found = json.loads((NOTEBOOKS / name).read_text(encoding="utf-8"))["cells"]
    assert not any(cell.get("outputs") for cell in found), "a notebook is committed without what it printed"
    return "\n".join("".join(cell["source"]) for cell in found if cell["cell_type"] == "code")

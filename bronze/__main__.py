"""`python -m bronze`: the same as `lakeward bronze`."""

from __future__ import annotations

import sys

from lakeward.cli import main

sys.exit(main(["bronze", *sys.argv[1:]]))

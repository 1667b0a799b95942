"""One bronze run without Spark, as a process of its own that can be killed.

Arguments: folder, url, include; SOURCE_PASSWORD."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from servers.sparkless import Sparkless

folder, url, include = sys.argv[1:4]
Sparkless(Path(folder), os.environ["SOURCE_PASSWORD"], [include], chunk_rows=400).run(url)

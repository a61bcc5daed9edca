"""Cases of other projects are collected only if `PARSER_CASES` names the folder that contains them."""

from __future__ import annotations

import os

collect_ignore = [] if os.environ.get("PARSER_CASES") else ["test_foreign_cases.py"]

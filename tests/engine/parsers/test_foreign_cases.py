"""Test texts of other projects are parsed as they expect, or differently for a stated reason.

Only with `make test PARSER_CASES=FOLDER`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from greenroom.tests.support.parsers.foreign_cases import ForeignCase, load_foreign_cases

CASES = load_foreign_cases(Path(os.environ["PARSER_CASES"]))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.ident)
def test_a_case_comes_out_right_wherever_its_text_is_cut(case: ForeignCase) -> None:
    whole = case.read([case.text])
    assert case.is_right(whole), (whole, case.expected)
    for pieces in case.cuts():
        assert case.read(pieces) == whole, pieces

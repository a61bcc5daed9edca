"""Cases of other projects are read in the form in which those files are written."""

from __future__ import annotations

import json
from pathlib import Path

from greenroom.tests.support.parsers.foreign_cases import load_foreign_cases

CASE = {
    "id": "another-project-1",
    "source": "another/project tests/test_calls.py",
    "tool_parser": "hermes_json",
    "thinking_parser": "gap:think_tag",
    "starts_in_thinking": True,
    "tools": None,
    "text": 'Ring.</think><tool_call>\n{"name": "ring", "arguments": {"times": 2}}\n</tool_call>',
    "expect": {"reasoning": "Ring.", "calls": [{"name": "ring", "arguments": {"times": 2}}]},
}


def test_a_case_is_read_and_held_against_its_expectation(tmp_path: Path) -> None:
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases" / "hermes_json.json").write_text(json.dumps([CASE]))
    [case] = load_foreign_cases(tmp_path)
    for pieces in ([case.text], *case.cuts()):
        outcome = case.read(pieces)
        assert case.is_right(outcome)
        assert not case.is_right({**outcome, "reasoning": "Sing."})
        assert not case.is_right({**outcome, "calls": []})

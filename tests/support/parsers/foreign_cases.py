"""Test cases of other projects: model outputs, and the results of those projects' parsers.

A folder of cases holds `*/FORMAT.json`, each a list of cases, and optionally `taste.json`: the cases for
which Greenroom decides otherwise, with reasons. `parser_case_reasons.json` has more such decisions in the
same form.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs

from greenroom.tests.support.parsers.model_outputs import parse_case

_REASONS = Path(__file__).parent / "parser_case_reasons.json"
_PIECES = (1, 2, 3, 5, 8, 13, 40)
_MISSING = object()

Outcome = dict[str, Any]
"""Content, reasoning and calls, as `parse_case` returns them."""


@attrs.frozen
class ForeignCase:
    """A model output with its expected results.

    Args:
        expected: Acceptable outcomes; fields left out are not compared.
        reason: Reason to accept another outcome too; empty if none is accepted.
        stays_text: True if that other outcome must have no call and the complete text.
    """

    ident: str
    text: str
    tools: list[dict[str, Any]] | None
    parsers: tuple[str, str]
    starts_in_reasoning: bool
    expected: tuple[Outcome, ...]
    reason: str
    stays_text: bool

    def read(self, pieces: list[str]) -> Outcome:
        """Return the outcome of parsing the text in these pieces."""
        return parse_case(*self.parsers, self.tools, self.starts_in_reasoning, pieces)

    def cuts(self) -> Iterator[list[str]]:
        """Yield the text in single characters, and three times in pieces of random length."""
        yield list(self.text)
        for seed in range(3):
            chance = random.Random(f"{seed}{self.text}")
            pieces, at = list[str](), 0
            while at < len(self.text):
                pieces.append(self.text[at : at + chance.choice(_PIECES)])
                at += len(pieces[-1])
            yield pieces

    def is_right(self, outcome: Outcome) -> bool:
        """Return whether an outcome is expected, or accepted for a reason."""
        if any(_agrees(expected, outcome) for expected in self.expected):
            return True
        return bool(self.reason) and (not self.stays_text or self._is_untouched(outcome))

    def _is_untouched(self, outcome: Outcome) -> bool:
        thought, content = outcome["reasoning"] or "", outcome["content"]
        kept = {_dense(f"{thought}{content}"), _dense(f"<think>{thought}</think>{content}")}
        return not outcome["calls"] and _dense(self.text) in kept


def load_foreign_cases(folder: Path) -> list[ForeignCase]:
    """Return the cases of all formats in a folder."""
    reasons, decided = dict[str, Any](), dict[str, str]()
    for path in (folder / "taste.json", _REASONS):
        if path.exists():
            taste = json.loads(path.read_text(encoding="utf-8"))
            reasons |= taste["reasons"]
            decided |= taste["cases"]
    cases = []
    for path in sorted(folder.glob("*/*.json")):
        for case in json.loads(path.read_text(encoding="utf-8")):
            reason = decided.get(case["id"], "")
            stays_text = reasons.get(reason, {}).get("must") == "text"
            cases.append(_foreign_case(case, reason, stays_text))
    return cases


def _foreign_case(case: dict[str, Any], reason: str, stays_text: bool) -> ForeignCase:
    tool_parser, reasoning_parser = (
        case[key].removeprefix("gap:") for key in ("tool_parser", "thinking_parser")
    )
    expected = (case["expect"], *(other["expect"] for other in case.get("also", ())))
    return ForeignCase(
        case["id"],
        case["text"],
        case["tools"],
        (tool_parser, reasoning_parser),
        case["starts_in_thinking"],
        expected,
        reason,
        stays_text,
    )


def _agrees(expected: Outcome, outcome: Outcome) -> bool:
    for field in ("content", "reasoning"):
        if field in expected and (expected[field] or "").strip() != (outcome[field] or "").strip():
            return False
    wanted, calls = expected.get("calls"), outcome["calls"]
    return wanted is None or (len(wanted) == len(calls) and all(map(_is_call, wanted, calls)))


def _is_call(wanted: dict[str, Any], call: dict[str, Any]) -> bool:
    return (
        wanted["name"] in (None, call["name"])
        and (wanted["arguments"] is None or _same(wanted["arguments"], call["arguments"]))
        and all(_same(value, _at(call["arguments"], path)) for path, value in wanted.get("has", ()))
    )


def _same(wanted: Any, value: Any) -> bool:
    """Return whether two JSON values are equal; unlike in Python, `true` differs from 1."""
    if isinstance(wanted, bool) or isinstance(value, bool):
        return wanted is value
    if isinstance(wanted, dict) and isinstance(value, dict):
        return wanted.keys() == value.keys() and all(_same(wanted[key], value[key]) for key in wanted)
    if isinstance(wanted, list) and isinstance(value, list):
        return len(wanted) == len(value) and all(map(_same, wanted, value))
    return bool(wanted == value)


def _at(value: Any, path: list[Any]) -> Any:
    for key in path:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            return _MISSING
    return value


def _dense(text: str) -> str:
    return "".join(text.split())

"""The table of limits in the guide matches the code."""

from __future__ import annotations

import re
from pathlib import Path

from greenroom.engine.grammar import limits

GUIDE = Path(__file__).resolve().parents[3] / "notes" / "structured-output.md"

DOCUMENTED = {
    "subschemas": limits.MAX_NODES,
    "listed values": limits.MAX_VALUES,
    "characters": limits.MAX_CHARACTERS,
    "steps of work": limits.MAX_STEPS,
    "levels": limits.MAX_DEPTH,
    "levels on a path": limits.MAX_PATH,
    "properties": limits.MAX_PROPERTIES,
    "patterns of properties": limits.MAX_PATTERN_PROPERTIES,
    "lengths and counts": limits.MAX_COUNT,
    "numbers": limits.MAX_EXACT_INTEGER,
    "multiples": limits.MAX_MULTIPLE,
    "decimals": limits.MAX_DECIMALS,
    "characters of an expression": limits.MAX_PATTERN,
    "intersected expressions": limits.MAX_INTERSECTED,
    "characters of a grammar": limits.MAX_GRAMMAR,
}


def test_the_guide_lists_each_limit_as_it_is() -> None:
    _, _, table = GUIDE.read_text().partition("### Limits")
    rows = re.findall(r"^\| ([a-z ]+) \| ([\d,]+) \|", table, flags=re.MULTILINE)
    assert {name: int(most.replace(",", "")) for name, most in rows} == DOCUMENTED

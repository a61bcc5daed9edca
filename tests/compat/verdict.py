"""What became of a client's tests, and whether that is what was expected."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from typing import Literal

import attrs

Outcome = Literal["passed", "failed", "skipped"]


@attrs.frozen
class Verdict:
    """The outcomes of one client's tests, against what is known of them.

    Args:
        outcomes: By test; a test that is expected to fail by its own suite, and does, was skipped.
        details: The last line of each failure.
        known: Why a test cannot pass, by its name.
        ended: The process of the tests came to its own end.
    """

    outcomes: Mapping[str, Outcome]
    details: Mapping[str, str] = attrs.field(factory=dict)
    known: Mapping[str, str] = attrs.field(factory=dict)
    ended: bool = True

    def count(self, outcome: Outcome) -> int:
        """Return how many tests came out so."""
        return sum(found == outcome for found in self.outcomes.values())

    @property
    def unexpected(self) -> list[str]:
        """The tests that failed though nothing is known that keeps them from passing."""
        return [name for name, found in self.outcomes.items() if found == "failed" and name not in self.known]

    @property
    def outdated(self) -> list[str]:
        """What is listed as a known failure and is none: it passed, or there is no such test."""
        return [name for name in self.known if self.outcomes.get(name) != "failed"]

    @property
    def good(self) -> bool:
        """Whether every test passed or failed as expected."""
        return self.ended and bool(self.outcomes) and not self.unexpected


def read_verdict(report: str, known: Mapping[str, str], *, ended: bool) -> Verdict:
    """Return the verdict on a report of pytest in JUnit's form."""
    outcomes: dict[str, Outcome] = {}
    details: dict[str, str] = {}
    for case in ElementTree.fromstring(report).iter("testcase"):
        name = _name(case)
        failure = next((found for kind in ("failure", "error") for found in case.findall(kind)), None)
        if failure is not None:
            outcomes[name] = "failed"
            details[name] = _reason(failure)
        elif name not in outcomes:
            outcomes[name] = "passed" if case.find("skipped") is None else "skipped"
    return Verdict(outcomes, details, known, ended)


def _name(case: ElementTree.Element) -> str:
    """Return a test's name with that of its class: `TestChat::test_stream`."""
    owner = case.get("classname", "").rpartition(".")[2]
    return f"{owner}::{case.get('name')}" if owner.startswith("Test") else case.get("name", "")


def _reason(failure: ElementTree.Element) -> str:
    lines = [line for line in (failure.get("message") or failure.text or "").splitlines() if line.strip()]
    return re.sub(r"\s+", " ", lines[0])[:300] if lines else "no reason given"

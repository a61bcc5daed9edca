"""Verdicts: a client's test results compared with the known failures."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from typing import Literal

import attrs

Outcome = Literal["passed", "failed", "skipped"]


@attrs.frozen
class Verdict:
    """The results of one client's tests, compared with its known failures.

    Args:
        outcomes: Outcomes by test; a failure that the suite itself expects counts as skipped.
        details: Last line of each failure, by test.
        known: Reasons of known failures, by test.
        ended: True if the test process ended by itself.
    """

    outcomes: Mapping[str, Outcome]
    details: Mapping[str, str] = attrs.field(factory=dict)
    known: Mapping[str, str] = attrs.field(factory=dict)
    ended: bool = True

    def count(self, outcome: Outcome) -> int:
        """Return the number of tests with an outcome."""
        return sum(found == outcome for found in self.outcomes.values())

    @property
    def unexpected(self) -> list[str]:
        """Tests that failed and are no known failures."""
        return [name for name, found in self.outcomes.items() if found == "failed" and name not in self.known]

    @property
    def outdated(self) -> list[str]:
        """Known failures that no longer fail: the test passed, was skipped, or is gone."""
        return [name for name in self.known if self.outcomes.get(name) != "failed"]

    @property
    def good(self) -> bool:
        """True if the tests ran to their end without an unexpected failure."""
        return self.ended and bool(self.outcomes) and not self.unexpected


def read_verdict(report: str, known: Mapping[str, str], *, ended: bool) -> Verdict:
    """Parse the JUnit XML report of pytest or node."""
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
    """Return a test's name, prefixed by its class: `TestChat::test_stream`."""
    owner = case.get("classname", "").rpartition(".")[2]
    return f"{owner}::{case.get('name')}" if owner.startswith("Test") else case.get("name", "")


def _reason(failure: ElementTree.Element) -> str:
    lines = [line for line in (failure.get("message") or failure.text or "").splitlines() if line.strip()]
    return re.sub(r"\s+", " ", lines[0])[:300] if lines else "no reason given"

"""Attack after attack for a given time, and what was found, as small as it gets."""

from __future__ import annotations

import contextlib
import math
import random
import time
from collections.abc import Callable

import attrs
import hypothesis
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st
from hypothesis.errors import Flaky, NoSuchExample

from greenroom.tests.attack.faults import Fault
from greenroom.tests.attack.requests.steps import Attack

Observe = Callable[[Attack], list[Fault]]
Report = Callable[[str], None]

REPETITIONS, NEEDED = 3, 2
"""A fault counts if it comes again in so many of so many repetitions: machines have bad moments."""
SHRINKING = 120.0
"""Seconds at most for making one attack smaller."""
ATTACKS_PER_SEED = 5
"""Few: within one search Hypothesis varies what it has tried, a new seed begins anew."""


@attrs.frozen
class Finding:
    """An attack that does harm.

    Args:
        seed: With which it was made.
        first: As it was found.
        smallest: The smallest that was seen to do the same.
        fault: What it does.
    """

    seed: int
    first: Attack
    smallest: Attack
    fault: Fault


@attrs.define
class Campaign:
    """Searches until the time is over.

    Args:
        attacks: What to try.
        observe: Carries out one attack and returns what went wrong.
        seconds: For everything.
        searches: At most; each tries up to `ATTACKS_PER_SEED` attacks and finds one harm.
        report: Gets a line for whatever a person who waits wants to know.
    """

    attacks: st.SearchStrategy[Attack]
    observe: Observe
    seconds: float
    report: Report = print
    searches: float = math.inf
    tried: int = 0
    findings: list[Finding] = attrs.field(factory=list)
    _end: float = 0.0
    _harmless: set[str] = attrs.field(factory=set)

    def run(self, seed: int) -> list[Finding]:
        """Return what was found; the same seed makes the same attacks."""
        self._end = time.monotonic() + self.seconds
        first = seed
        while time.monotonic() < self._end and seed < first + self.searches:
            self._search(seed)
            seed += 1
        return self.findings

    def _search(self, seed: int) -> None:
        search = _Search(self, seed)
        settings = hypothesis.settings(
            max_examples=ATTACKS_PER_SEED,
            phases=(Phase.generate, Phase.shrink),
            database=None,
            deadline=None,
            derandomize=False,
            suppress_health_check=list(HealthCheck),
        )
        # Harm that stops coming while it is made smaller stays a finding: it was seen four times over.
        with contextlib.suppress(NoSuchExample, Flaky):
            hypothesis.find(self.attacks, search.does_harm, settings=settings, random=random.Random(seed))
        if search.first and search.smallest and search.fault:
            self.findings.append(Finding(seed, search.first, search.smallest, search.fault))
            self.report(f"FOUND {search.fault.kind}: {search.fault.detail}\n      {search.smallest!r:.2000}")

    def is_over(self) -> bool:
        """Return whether the time is over."""
        return time.monotonic() > self._end

    def shrink_until(self) -> float:
        """Return until when an attack that is found now may be made smaller."""
        return min(time.monotonic() + SHRINKING, self._end + SHRINKING / 4)

    def is_harmless(self, attack: Attack) -> bool:
        """Return whether an attack was tried before; every search begins with the simplest one."""
        return repr(attack) in self._harmless

    def note_harmless(self, attack: Attack) -> None:
        """Remember that nothing came of an attack."""
        self._harmless.add(repr(attack))

    def is_known(self, attack: Attack) -> bool:
        """Return whether an attack contains all that a finding is made of."""
        ingredients = attack.ingredients
        known = (finding.smallest.ingredients for finding in self.findings)
        return any(of and of <= ingredients for of in known)


def confirmed(observe: Callable[[], list[Fault]]) -> list[Fault]:
    """Return what is seen now and comes again, one fault of each kind."""
    kinds = {fault.kind: fault for fault in observe()}
    return coming_again(list(kinds.values()), observe) if kinds else []


def coming_again(faults: list[Fault], observe: Callable[[], list[Fault]]) -> list[Fault]:
    """Return those of the faults whose kinds come again in most repetitions."""
    again = [{fault.kind for fault in observe()} for _ in range(REPETITIONS)]
    return [fault for fault in faults if sum(fault.kind in seen for seen in again) >= NEEDED]


@attrs.define
class _Search:
    """What Hypothesis calls with one attack after the other, first to find harm and then to shrink it."""

    campaign: Campaign
    seed: int
    first: Attack | None = None
    smallest: Attack | None = None
    fault: Fault | None = None
    _shrink_until: float = 0.0

    def does_harm(self, attack: Attack) -> bool:
        """Return whether an attack does harm, and the same harm as the one that is being shrunk."""
        if self.first is not None and time.monotonic() > self._shrink_until:
            return attack == self.smallest
        if self.campaign.is_known(attack) or (self.first is None and self.campaign.is_over()):
            return False
        if self.campaign.is_harmless(attack):
            return False
        fault = self._confirmed(attack)
        if fault is None:
            self.campaign.note_harmless(attack)
            return False
        if self.first is None:
            self.first = attack
            self._shrink_until = self.campaign.shrink_until()
            self.campaign.report(f"found {fault.kind} ({fault.detail}), shrinking {attack!r:.500}")
        self.smallest, self.fault = attack, fault
        return True

    def _confirmed(self, attack: Attack) -> Fault | None:
        """Return what an attack does in most repetitions; None if nothing, or nothing the first time."""
        self.campaign.tried += 1
        kinds = {fault.kind: fault for fault in self.campaign.observe(attack)}
        if self.fault is not None:
            kinds = {kind: fault for kind, fault in kinds.items() if kind == self.fault.kind}
        if not kinds:
            return None
        again = coming_again(list(kinds.values()), lambda: self.campaign.observe(attack))
        if again:
            return again[0]
        first = next(iter(kinds.values()))
        self.campaign.report(f"once only: {first.kind} ({first.detail}) of {attack!r:.300}")
        return None

"""A search for harmful attacks within a time limit; each one found is shrunk."""

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
"""A fault counts if it recurs in `NEEDED` of `REPETITIONS` repetitions: machines have bad moments."""
SHRINKING = 120.0
"""Time limit for shrinking one attack, in seconds."""
ATTACKS_PER_SEED = 5
"""Attacks of one search. It is small because Hypothesis varies earlier attacks; a new seed gives new ones."""


@attrs.frozen
class Finding:
    """A harmful attack.

    Args:
        seed: Seed of the search that found it.
        first: Attack as first found.
        smallest: Smallest attack seen to cause the same fault.
        fault: Fault that it causes.
    """

    seed: int
    first: Attack
    smallest: Attack
    fault: Fault


@attrs.define
class Campaign:
    """A series of searches within a time limit.

    Args:
        attacks: Strategy that draws attacks.
        observe: Function that carries out an attack and returns its faults.
        seconds: Time limit in seconds.
        searches: Maximum number of searches; each tries up to `ATTACKS_PER_SEED` attacks for one fault.
        report: Callback for a line of progress.
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
        """Run searches; return their findings. Equal seeds make equal attacks."""
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
        # A fault that stops recurring while it is shrunk remains a finding, since it was confirmed before.
        with contextlib.suppress(NoSuchExample, Flaky):
            hypothesis.find(self.attacks, search.does_harm, settings=settings, random=random.Random(seed))
        if search.first and search.smallest and search.fault:
            self.findings.append(Finding(seed, search.first, search.smallest, search.fault))
            self.report(f"FOUND {search.fault.kind}: {search.fault.detail}\n      {search.smallest!r:.2000}")

    def is_over(self) -> bool:
        """Return whether the time limit has passed."""
        return time.monotonic() > self._end

    def shrink_until(self) -> float:
        """Return the end of shrinking for an attack found now, by `time.monotonic`."""
        return min(time.monotonic() + SHRINKING, self._end + SHRINKING / 4)

    def is_harmless(self, attack: Attack) -> bool:
        """Return whether an attack was tried before without a fault, as each search's first one often was."""
        return repr(attack) in self._harmless

    def note_harmless(self, attack: Attack) -> None:
        """Record that an attack caused no fault."""
        self._harmless.add(repr(attack))

    def is_known(self, attack: Attack) -> bool:
        """Return whether an attack contains all ingredients of a finding."""
        ingredients = attack.ingredients
        known = (finding.smallest.ingredients for finding in self.findings)
        return any(of and of <= ingredients for of in known)


def confirmed(observe: Callable[[], list[Fault]]) -> list[Fault]:
    """Return the recurring faults of an observation, one of each kind."""
    kinds = {fault.kind: fault for fault in observe()}
    return coming_again(list(kinds.values()), observe) if kinds else []


def coming_again(faults: list[Fault], observe: Callable[[], list[Fault]]) -> list[Fault]:
    """Return the faults whose kinds recur in most repetitions."""
    again = [{fault.kind for fault in observe()} for _ in range(REPETITIONS)]
    return [fault for fault in faults if sum(fault.kind in seen for seen in again) >= NEEDED]


@attrs.define
class _Search:
    """A predicate that Hypothesis calls with attacks, first to find a harmful one and then to shrink it."""

    campaign: Campaign
    seed: int
    first: Attack | None = None
    smallest: Attack | None = None
    fault: Fault | None = None
    _shrink_until: float = 0.0

    def does_harm(self, attack: Attack) -> bool:
        """Return whether an attack causes a fault; while shrinking, whether it causes the same one."""
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
        """Return the recurring fault of an attack, or None."""
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

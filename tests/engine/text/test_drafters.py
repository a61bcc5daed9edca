"""Tests of the speculation policy on a simulated clock: it drafts where that pays off, rarely elsewhere."""

from __future__ import annotations

import random
from collections.abc import Callable
from collections.abc import Sequence as GenericSequence
from typing import Any, cast

import attrs
import pytest

from greenroom.engine.text.drafters import PromptLookup, SpeculationPolicy
from greenroom.engine.text.sampling_parameters import SamplingParameters
from greenroom.engine.text.sequence import Sequence


@attrs.define
class Stream:
    """A lone stream in simulated time.

    Args:
        step: Milliseconds of a plain step.
        cost: Function from the number of draft tokens to the milliseconds of their pass.
        likely: Probability that a draft token is right.
        late: Additional milliseconds of an unpipelined plain step.
        match: Probability that a draft is available.
    """

    step: float
    cost: Callable[[int], float]
    likely: float
    late: float = 0.2
    match: float = 1.0
    now: float = 0.0
    tokens: int = 0
    drafted: int = 0

    def run(self, policy: SpeculationPolicy, tokens: int, seed: int = 1) -> float:
        """Return the tokens per plain step's time over so many tokens; 1 is the speed without speculation."""
        chance = random.Random(seed)
        began, target = self.now, self.tokens + tokens
        while self.tokens < target:
            noise = chance.lognormvariate(0, 0.1)
            count = policy.draft_length(1000) if chance.random() < self.match else 0
            if not count:
                self.now += self.step * noise
                self.tokens += 1
                policy.record_step(self.step * noise)
                continue
            accepted = 0
            while accepted < count and chance.random() < self.likely:
                accepted += 1
            spent = self.cost(count) * noise
            self.now += spent
            self.tokens += accepted + 1
            self.drafted += count
            policy.record_draft(count, accepted, spent)
            if chance.random() < 0.5:
                self.now += self.step + self.late
                self.tokens += 1
                policy.record_unpipelined(self.step + self.late)
        return self.step * tokens / (self.now - began)


def flat(count: int) -> float:
    """Return a memory-bound machine: more tokens cost hardly more."""
    return 1.1 + 0.02 * count


def steep(count: int) -> float:
    """Return a compute-bound machine: each token costs its own time."""
    return 1.0 + 0.9 * count


def test_long_drafts_where_they_are_right_and_cheap() -> None:
    policy = SpeculationPolicy()
    stream = Stream(1.0, flat, likely=0.97)
    stream.run(policy, 200)
    assert stream.run(policy, 2000) > 3
    assert policy.draft_length(1000) >= 8
    assert policy.draft_length(3) == 3


def test_short_drafts_where_they_are_often_wrong() -> None:
    policy = SpeculationPolicy()
    stream = Stream(1.0, flat, likely=0.5)
    stream.run(policy, 500)
    assert stream.run(policy, 2000) > 1.2
    assert stream.drafted / stream.tokens < 4


@pytest.mark.parametrize(("cost", "likely"), [(flat, 0.02), (steep, 0.5), (steep, 0.9), (flat, 0.0)])
def test_a_stream_for_which_drafts_never_pay_loses_next_to_nothing(
    cost: Callable[[int], float], likely: float
) -> None:
    policy = SpeculationPolicy()
    stream = Stream(1.0, cost, likely)
    stream.run(policy, 200)
    assert stream.run(policy, 5000) > 0.98


def test_drafts_come_back_when_they_pay_again() -> None:
    policy = SpeculationPolicy()
    stream = Stream(1.0, flat, likely=0.0)
    stream.run(policy, 2000)
    stream.likely = 0.95
    assert stream.run(policy, 2000) > 2


def test_a_machine_that_becomes_slow_at_passes_is_noticed() -> None:
    policy = SpeculationPolicy()
    stream = Stream(1.0, flat, likely=0.6)
    stream.run(policy, 1000)
    stream.cost = steep
    stream.run(policy, 300)
    assert stream.run(policy, 5000) > 0.98


def test_plain_steps_that_become_slower_are_measured_among_drafts() -> None:
    policy = SpeculationPolicy()
    stream = Stream(1.0, flat, likely=0.99)
    stream.run(policy, 2000)
    stream.step, stream.cost = 3.0, lambda count: 3 * flat(count)
    stream.run(policy, 10000)
    assert policy.step_ms == pytest.approx(3.0, rel=0.3)


def lookup_in(prompt: GenericSequence[int]) -> PromptLookup:
    text = cast(Any, None)  # nothing of it is decoded
    lookup = PromptLookup()
    lookup.begin(Sequence("0", tuple(prompt), 20, frozenset(), SamplingParameters(), text))
    lookup.add([])
    return lookup


def test_lookup_finds_what_followed_the_latest_match() -> None:
    assert not lookup_in([1, 2, 3, 4]).can_draft()
    assert lookup_in([1, 2, 3, 4, 5, 6, 7, 1, 2, 3]).lookup(6) == [4, 5, 6, 7, 1, 2]
    assert lookup_in([1, 2, 3, 4, 1, 2, 3, 9, 1, 2, 3]).lookup(2) == [9, 1]
    assert not lookup_in([7, 2, 3, 4, 9, 2, 3]).can_draft()  # two tokens are no match


def test_a_loop_is_drafted_on_beyond_its_end() -> None:
    assert lookup_in([5, 6, 7, 5, 6, 7, 5, 6, 7]).lookup(6) == [5, 6, 7, 5, 6, 7]
    assert lookup_in([5] * 12).lookup(6) == [5] * 6


def test_lookup_goes_on_with_the_answer() -> None:
    lookup = lookup_in([1, 2, 3, 4])
    for token in (9, 1, 2, 3):
        lookup.add([token])
    assert lookup.lookup(3) == [4, 9, 1]
    lookup.add([7])
    assert not lookup.can_draft()
    lookup.add([1, 2, 3])
    assert lookup.lookup(1) == [7]


def test_a_long_prompt_is_indexed_piece_by_piece() -> None:
    lookup = lookup_in([*range(3000), 10, 11, 12])
    pieces = 1
    while not lookup.can_draft():
        lookup.add([])
        pieces += 1
    assert pieces > 3
    assert lookup.lookup(2) == [13, 14]

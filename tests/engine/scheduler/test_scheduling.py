"""How prompts and running streams share a machine, on a machine whose clock is an addition."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import attrs
import pytest

from greenroom.engine.batch.shape import Shape
from greenroom.engine.scheduler.batch_policy import BatchPolicy
from greenroom.engine.scheduler.cost_model import LinearCost, PrefillChunk, StepCosts
from greenroom.engine.scheduler.fair_queue import FairQueue, WaitingPrompt
from greenroom.engine.scheduler.prefill_policy import PrefillPolicy
from greenroom.engine.scheduler.step_timer import StepTimer


@attrs.define
class Machine:
    """A machine on which a step takes what these figures say, and some noise."""

    weights: float = 2.5
    row: float = 0.5
    cached: float = 0.0015
    token: float = 0.5
    pair: float = 3e-4
    slowness: float = 1.0
    noise: float = 0.05
    random: random.Random = attrs.field(factory=lambda: random.Random(7))

    def decode(self, groups: Sequence[Shape]) -> float:
        return self._took(sum(self.weights + n * (self.row + self.cached * length) for n, length in groups))

    def slice(self, tokens: int, context: int) -> float:
        return self._took(self.weights + tokens * (self.token + self.pair * (context + tokens / 2)))

    def _took(self, milliseconds: float) -> float:
        return milliseconds * self.slowness * self.random.uniform(1 - self.noise, 1 + self.noise)


STREAMS: list[Shape] = [(8, 64)]


def prefill_beside(machine: Machine, policy: PrefillPolicy, prompt: int = 3600) -> tuple[float, list[float]]:
    """A prompt arrives among 8 streams: when it is done, and the gaps between their tokens, sorted."""
    costs = StepCosts()
    for _ in range(40):
        costs.observe(STREAMS, [], machine.decode(STREAMS))
    done, step, last, gaps = 0, 0, 0, list[float]()
    while done < prompt:
        step += 1
        decoding, pieces, taken = machine.decode(STREAMS), list[PrefillChunk](), 0.0
        if not policy.skips_prefill(step):
            budget = policy.budget(costs.decode_ms(STREAMS))
            last = min(policy.chunk_tokens(costs, budget, done, last, idle=False), prompt - done)
            pieces.append((1, last, done))
            taken = machine.slice(last, done)
            done += last
        costs.observe(STREAMS, pieces, decoding + taken)
        gaps.append(decoding + taken)
    return sum(gaps), sorted(gaps)


def undisturbed(machine: Machine) -> list[float]:
    """Gaps between tokens of the streams by themselves, sorted."""
    return sorted(machine.decode(STREAMS) for _ in range(1000))


def alone(machine: Machine, prompt: int = 3600) -> float:
    return sum(machine.slice(200, done) for done in range(0, prompt, 200))


def p99(ordered: Sequence[float]) -> float:
    return ordered[-(-len(ordered) * 99 // 100) - 1]


@pytest.mark.parametrize("slowness", [0.01, 1.0, 20.0])
def test_streams_keep_their_pace_and_the_prompt_gets_the_rest(slowness: float) -> None:
    machine = Machine(slowness=slowness, weights=0.2)
    clock, gaps = prefill_beside(machine, PrefillPolicy(step_ms=0))
    assert p99(gaps) <= 3 * p99(undisturbed(machine))
    assert clock <= 1.6 * alone(machine)


@pytest.mark.parametrize("noise", [0.2, 0.4])
def test_streams_keep_their_pace_on_a_machine_that_has_other_things_to_do(noise: float) -> None:
    machine = Machine(noise=noise, weights=0.2)
    clock, gaps = prefill_beside(machine, PrefillPolicy(step_ms=0))
    assert p99(gaps) <= 3.3 * p99(undisturbed(machine))
    assert clock <= 1.65 * alone(machine)


@pytest.mark.parametrize("late", [False, True])
def test_a_copy_is_timed_whichever_interval_it_lies_in(late: bool) -> None:
    """With its step's launch where launching blocks, and one interval later where it does not."""
    now = 0.0
    costs = StepCosts()
    timer = StepTimer(costs, clock=lambda: now)
    assert costs.copy_ms(10**6) == 0
    for step in range(40):
        timer.on_launched(STREAMS, 10**6 if step == 30 else 0)
        timer.on_prefill_launched([])
        now += 0.014 if step == 30 + late else 0.010
        timer.on_tokens_read()
    assert costs.copy_ms(5 * 10**5) == pytest.approx(2.0, rel=0.1)
    assert costs.decode_ms(STREAMS) == pytest.approx(10.0, rel=0.05)


def test_a_noisy_cost_is_fitted_at_its_mean() -> None:
    noise, cost = random.Random(3), LinearCost((1.0,))
    found = []
    for _ in range(600):
        cost.observe((1.0,), 10 * noise.uniform(0.5, 1.5))
        found.append(cost.predict((1.0,)))
    assert sum(found[100:]) / 500 == pytest.approx(10, rel=0.03)


def test_one_sample_of_nearly_nothing_does_not_make_all_seem_free() -> None:
    cost = LinearCost((1.0,))
    for took in [10.0] * 50 + [0.01] + [10.0]:
        cost.observe((1.0,), took)
    assert cost.predict((1.0,)) == pytest.approx(10, rel=0.1)


def test_a_burst_may_hold_up_those_who_decode_longer_than_one_prompt_may() -> None:
    policy = PrefillPolicy(max_stall=2, step_ms=6, max_waiting_factor=4)
    assert policy.budget(10, waiting=1) < policy.budget(10, waiting=3) < policy.budget(10, waiting=4)
    assert policy.budget(10, waiting=100) == policy.budget(10, waiting=4) <= 2 * 4 * 10
    assert policy.budget(0.1) == policy.budget(6)


def test_both_ends_can_be_moved() -> None:
    policies = [PrefillPolicy(max_stall=stall, min_chunk=1) for stall in (1, 2, 4, 16)]
    seen = [prefill_beside(Machine(weights=0.5), policy) for policy in policies]
    step = Machine(weights=0.5, noise=0).decode(STREAMS)
    clocks, gaps = [clock for clock, _ in seen], [p99(gaps) / step for _, gaps in seen]
    assert clocks == sorted(clocks, reverse=True)
    assert gaps == sorted(gaps)
    assert gaps[0] < 2.2
    assert clocks[-1] < 1.25 * alone(Machine(weights=0.5))


def test_slices_shrink_as_the_prompt_grows() -> None:
    costs = StepCosts()
    for context in range(0, 3000, 30):
        costs.observe([], [(1, 30, context)], Machine(noise=0).slice(30, context))
    early, late = (costs.tokens_within(20, context) for context in (0, 3500))
    assert late < early / 2
    assert Machine(noise=0).slice(early, 0) == pytest.approx(20, rel=0.15)
    assert Machine(noise=0).slice(late, 3500) == pytest.approx(20, rel=0.15)


def test_a_machine_that_becomes_slow_does_not_starve_the_prompt() -> None:
    """Blaming the slowness on the slices would make them ever smaller."""

    @attrs.define
    class Slowing(Machine):
        asked: int = 0

        def _took(self, milliseconds: float) -> float:
            self.asked += 1
            self.slowness = 3.0 if self.asked > 120 else 1.0
            return Machine._took(self, milliseconds)

    clock, gaps = prefill_beside(Slowing(), PrefillPolicy())
    assert clock <= 2 * 3 * alone(Machine())
    assert gaps[len(gaps) // 2] >= 2 * 3 * Machine(noise=0).decode(STREAMS)


def test_an_unbounded_stall_computes_prompts_as_fast_as_possible() -> None:
    clock, gaps = prefill_beside(Machine(), PrefillPolicy(max_stall=float("inf")))
    assert len(gaps) <= 3
    assert clock <= 1.2 * alone(Machine())


def run_queue(
    waiting: list[WaitingPrompt], slice_tokens: int, arrivals: dict[int, WaitingPrompt] | None = None
) -> list[str]:
    """The conversations in the order in which their prompts are done."""
    queue, done, turn = FairQueue(), [], 0
    while waiting or arrivals:
        if arrivals and turn in arrivals:
            waiting.append(arrivals.pop(turn))
        turn += 1
        if not waiting:
            continue
        index = queue.choose(waiting)
        prompt = waiting[index]
        queue.charge([prompt.client], min(slice_tokens, prompt.remaining))
        if prompt.remaining <= slice_tokens:
            done.append(waiting.pop(index).conversation)
        else:
            waiting[index] = attrs.evolve(prompt, remaining=prompt.remaining - slice_tokens)
    return done


def test_a_short_prompt_is_not_stuck_behind_long_ones() -> None:
    long = [WaitingPrompt("one", f"long{i}", 4000) for i in range(4)]
    assert run_queue([*long, WaitingPrompt("one", "short", 50)], 64)[0] == "short"


def test_a_long_prompt_is_not_stuck_behind_a_stream_of_short_ones() -> None:
    shorts = {turn: WaitingPrompt("one", f"short{turn}", 64) for turn in range(1, 400)}
    done = run_queue([WaitingPrompt("one", "long", 6400)], 64, shorts)
    assert done.index("long") <= 110


def test_sixteen_long_prompts_of_one_client_do_not_starve_another() -> None:
    greedy = [WaitingPrompt("greedy", f"long{i}", 4000) for i in range(16)]
    done = run_queue([*greedy, WaitingPrompt("modest", "modest", 4000)], 64)
    assert done.index("modest") <= 1


def test_who_was_away_has_nothing_saved_up() -> None:
    queue = FairQueue()
    busy = WaitingPrompt("busy", "a", 1000)
    for _ in range(50):
        queue.choose([busy])
        queue.charge(["busy"], 10)
    both = [busy, WaitingPrompt("new", "b", 1000)]
    turns = []
    for _ in range(20):
        turns.append(both[queue.choose(both)].client)
        queue.charge([turns[-1]], 10)
    assert 9 <= turns.count("new") <= 11


def test_of_one_conversation_only_the_oldest_counts() -> None:
    first, second, other = (
        WaitingPrompt("c", "a", 100),
        WaitingPrompt("c", "a", 10),
        WaitingPrompt("c", "b", 50),
    )
    queue, chosen = FairQueue(), set()
    for _ in range(6):
        chosen.add(queue.choose([first, second, other]))
        queue.charge(["c"], 1)
    assert chosen == {0, 2}


@pytest.mark.parametrize(
    ("groups", "joining", "place"),
    [
        ([(8, 100)], (1, 6000), None),
        ([(1, 6000)], (8, 100), None),
        ([(8, 100), (1, 6000)], (1, 5000), 1),
        ([(8, 100), (1, 6000)], (1, 200), 0),
        ([], (1, 5), None),
    ],
)
def test_rows_join_where_padding_costs_less_than_a_pass(
    groups: list[Shape], joining: Shape, place: int | None
) -> None:
    assert BatchPolicy().place(groups, joining, 2048) == place


def test_groups_merge_and_split_by_the_same_measure_with_room_in_between() -> None:
    policy = BatchPolicy()
    assert policy.merge([(1, 600), (8, 5000), (2, 700)], 2048) == (0, 2)
    assert policy.merge([(1, 600), (2, 5000)], 2048) is None
    assert policy.split([100] * 8 + [6000], 2048) == 100
    assert policy.split([100] * 8 + [250], 2048) is None
    for gap in range(0, 4000, 50):
        merged = policy.merge([(1, 100), (1, 100 + gap)], 2048)
        assert merged is None or policy.split([100, 100 + gap], 2048) is None


def test_a_fit_finds_what_things_cost() -> None:
    machine, costs = Machine(), StepCosts()
    for rows in (1, 8, 3, 16) * 4:
        for length in range(50, 500, 50):
            for _ in range(8):
                costs.observe([(rows, length)], [], machine.decode([(rows, length)]))
    shape: list[Shape] = [(8, 300), (1, 3000)]
    assert costs.decode_ms(shape) == pytest.approx(machine.decode(shape), rel=0.25)
    assert 800 < costs.padding_per_pass < 3500


@pytest.mark.parametrize("value", [lambda x: 5.0, lambda x: 3 * x, lambda x: 2 + 0.5 * x])
def test_coefficients_are_never_negative(value: Callable[[float], float]) -> None:
    cost = LinearCost((1.0, 1.0))
    for x in range(1, 60):
        cost.observe((1.0, x), value(x))
    assert min(cost.coefficients) >= 0
    assert cost.predict((1.0, 40)) == pytest.approx(value(40), rel=0.1)

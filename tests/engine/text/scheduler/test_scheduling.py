"""Simulations of prompts beside running streams, on a machine with a simulated clock."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import attrs
import pytest

from greenroom.engine.text.batch import Shape
from greenroom.engine.text.scheduler.prefill_policy import PrefillPolicy
from greenroom.engine.text.scheduler.prefill_queue import PrefillQueue
from greenroom.engine.text.scheduler.running_batches import BatchLimits, BatchPolicy
from greenroom.engine.text.scheduler.step_costs import LinearCost, PrefillChunk, StepCosts, StepTimer
from greenroom.tests.support.engines.schedules import deep_only
from greenroom.tests.support.engines.sequences import sequence
from greenroom.tests.support.engines.text_engines import loaded


@pytest.fixture
def folder(tiny_model: Callable[..., Path]) -> Path:
    return tiny_model("qwen3", num_hidden_layers=1)  # its clock is simulated


@attrs.define
class Machine:
    """A machine whose steps take the given times plus some noise."""

    weights: float = 2.5
    row: float = 0.5
    cached: float = 0.0015
    token: float = 0.5
    pair: float = 3e-4
    slowness: float = 1.0
    noise: float = 0.05
    random: random.Random = attrs.field(factory=lambda: random.Random(7))

    def decode(self, batches: Sequence[Shape]) -> float:
        return self._with_noise(
            sum(self.weights + n * (self.row + self.cached * length) for n, length in batches)
        )

    def prefill(self, tokens: int, context: int) -> float:
        return self._with_noise(self.weights + tokens * (self.token + self.pair * (context + tokens / 2)))

    def _with_noise(self, milliseconds: float) -> float:
        return milliseconds * self.slowness * self.random.uniform(1 - self.noise, 1 + self.noise)


STREAMS: list[Shape] = [(8, 64)]


PROMPT = 1800


@attrs.define
class Beside:
    """A real prefill queue and model, beside 8 streams simulated in the machine's time."""

    folder: Path
    machine: Machine
    policy: PrefillPolicy
    now: float = 0.0
    costs: StepCosts = attrs.field(factory=StepCosts)

    def prefill(self, prompt: int = PROMPT) -> tuple[float, list[float]]:
        """Prefill a prompt; return its end time, and the sorted gaps between the streams' tokens."""
        queue = PrefillQueue(loaded(self.folder)[0], self.policy, self.costs, clock=lambda: self.now / 1e3)
        timer = StepTimer(self.costs, clock=lambda: self.now / 1e3)
        for _ in range(40):
            self._step(timer, [])
        began, gaps = self.now, list[float]()
        queue.add(sequence("prompt", prompt))
        chunks: list[PrefillChunk] = []
        while len(queue):
            gaps.append(self._step(timer, chunks))
            if queue.pop_prefilled():
                break
            _, chunks = queue.advance(self.costs.decode_ms(STREAMS))
            timer.on_prefill_launched(chunks)
        return self.now - began, sorted(gaps)

    def _step(self, timer: StepTimer, chunks: Sequence[PrefillChunk]) -> float:
        timer.on_launched(STREAMS, 0)
        took = self.machine.decode(STREAMS)
        took += sum(self.machine.prefill(tokens, context) for _, tokens, context in chunks)
        self.now += took
        timer.on_tokens_read()
        if not chunks:
            timer.on_prefill_launched([])
        return took


def undisturbed(machine: Machine) -> list[float]:
    """Sorted gaps between tokens of the streams without prefill."""
    return sorted(machine.decode(STREAMS) for _ in range(1000))


def alone(machine: Machine, prompt: int = PROMPT) -> float:
    return sum(machine.prefill(200, done) for done in range(0, prompt, 200))


def p99(ordered: Sequence[float]) -> float:
    return ordered[-(-len(ordered) * 99 // 100) - 1]


@pytest.mark.deep
@pytest.mark.parametrize("slowness", [1.0, *deep_only(0.01, 20.0)])
def test_streams_keep_their_pace_and_the_prompt_gets_the_rest(folder: Path, slowness: float) -> None:
    machine = Machine(slowness=slowness, weights=0.2)
    clock, gaps = Beside(folder, machine, PrefillPolicy(step_ms=0)).prefill()
    assert p99(gaps) <= 3 * p99(undisturbed(machine))
    assert clock <= 1.6 * alone(machine)


@pytest.mark.deep
@pytest.mark.parametrize("noise", [0.4, *deep_only(0.2)])
def test_streams_keep_their_pace_on_a_machine_that_has_other_things_to_do(folder: Path, noise: float) -> None:
    machine = Machine(noise=noise, weights=0.2)
    clock, gaps = Beside(folder, machine, PrefillPolicy(step_ms=0)).prefill()
    assert p99(gaps) <= 3.3 * p99(undisturbed(machine))
    assert clock <= 1.65 * alone(machine)


@pytest.mark.parametrize("late", [False, True])
def test_a_copy_is_timed_whichever_interval_it_lies_in(late: bool) -> None:
    """The copy falls into its step's interval if launching blocks, and into the next one if not."""
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


def test_on_a_slow_machine_few_chunks_read_the_weights(folder: Path) -> None:
    """As SmolLM2 with 135 million weights in bfloat16 takes on two cores: 85 ms, and 65 for each token."""
    costs, chunks = StepCosts(), list[PrefillChunk]()
    for _ in range(20):
        costs.observe([(1, 40)], [], 150.0)
        costs.observe([], [(1, 8, 0)], 85 + 65 * 8)
    queue = PrefillQueue(loaded(folder)[0], PrefillPolicy(), costs, clock=lambda: 0.0)
    queue.add(sequence("prompt", 61))
    while not queue.pop_prefilled():
        chunks += queue.advance(decode_ms=0.0)[1]
    assert sum(tokens for _, tokens, _ in chunks) == 60
    assert sum(85 + 65 * tokens for _, tokens, _ in chunks) <= 1.1 * (85 + 65 * 60)


@pytest.mark.deep
def test_both_ends_can_be_moved(folder: Path) -> None:
    policies = [PrefillPolicy(max_stall=stall, min_chunk=1) for stall in (1, 2, 4, 16)]
    seen = [Beside(folder, Machine(weights=0.5), policy).prefill() for policy in policies]
    step = Machine(weights=0.5, noise=0).decode(STREAMS)
    clocks, gaps = [clock for clock, _ in seen], [p99(gaps) / step for _, gaps in seen]
    assert clocks == sorted(clocks, reverse=True)
    assert gaps == sorted(gaps)
    assert gaps[0] < 2.5
    assert clocks[-1] < 1.25 * alone(Machine(weights=0.5))


def test_chunks_shrink_as_the_prompt_grows() -> None:
    costs = StepCosts()
    for context in range(0, 3000, 30):
        costs.observe([], [(1, 30, context)], Machine(noise=0).prefill(30, context))
    early, late = (costs.tokens_within(20, context) for context in (0, 3500))
    assert late < early / 2
    assert Machine(noise=0).prefill(early, 0) == pytest.approx(20, rel=0.15)
    assert Machine(noise=0).prefill(late, 3500) == pytest.approx(20, rel=0.15)


@pytest.mark.deep
def test_a_machine_that_becomes_slow_does_not_starve_the_prompt(folder: Path) -> None:
    """If the slowness were attributed to the chunks, they would shrink without end."""

    @attrs.define
    class Slowing(Machine):
        steps: int = 0

        def _with_noise(self, milliseconds: float) -> float:
            self.steps += 1
            self.slowness = 3.0 if self.steps > 120 else 1.0
            return Machine._with_noise(self, milliseconds)

    clock, gaps = Beside(folder, Slowing(), PrefillPolicy()).prefill()
    assert clock <= 2.5 * 3 * alone(Machine())
    assert gaps[len(gaps) * 3 // 4] >= 2 * 3 * Machine(noise=0).decode(STREAMS)


@pytest.mark.deep
def test_an_unbounded_stall_computes_prompts_as_fast_as_possible(folder: Path) -> None:
    clock, gaps = Beside(folder, Machine(), PrefillPolicy(max_stall=float("inf"))).prefill()
    assert len(gaps) <= 3
    assert clock <= 1.2 * alone(Machine())


def run_queue(
    folder: Path, waiting: list[tuple[str, str, int]], last: str, later: Iterable[tuple[str, str, int]] = ()
) -> list[str]:
    """Return the prompts in order of completion, up to the last relevant one.

    Args:
        waiting: Client, name and tokens of each prompt.
        later: Prompts, one of which arrives at each step.
    """
    costs = StepCosts()
    for context in range(0, 3000, 30):
        costs.observe([], [(1, 30, context)], Machine(noise=0).prefill(30, context))
    policy = PrefillPolicy(max_stall=1e-9, min_chunk=64)
    queue, done, arrivals = PrefillQueue(loaded(folder)[0], policy, costs), list[str](), iter(later)
    for client, name, tokens in waiting:
        queue.add(sequence(name, tokens), client=client)
    while last not in done:
        queue.advance(decode_ms=1.0)
        done += [member.request_id for prefilled in queue.pop_prefilled() for member in prefilled.sequences]
        if (arrival := next(arrivals, None)) is not None:
            queue.add(sequence(arrival[1], arrival[2]), client=arrival[0])
    return done


def test_a_short_prompt_is_not_stuck_behind_long_ones(folder: Path) -> None:
    long = [("one", f"long{index}", 1000) for index in range(4)]
    assert run_queue(folder, [*long, ("one", "short", 50)], "short") == ["short"]


@pytest.mark.deep
def test_a_long_prompt_is_not_stuck_behind_a_stream_of_short_ones(folder: Path) -> None:
    shorts = (("one", f"short{index}", 60) for index in range(400))
    done = run_queue(folder, [("one", "long", 1600)], "long", shorts)
    assert 10 < len(done) <= 30


def test_sixteen_long_prompts_of_one_client_do_not_starve_another(folder: Path) -> None:
    greedy = [("greedy", f"long{index}", 600) for index in range(16)]
    done = run_queue(folder, [*greedy, ("modest", "modest", 600)], "modest")
    assert len(done) <= 2


@pytest.mark.parametrize(
    ("batches", "arrival", "place"),
    [
        ([(8, 100)], (1, 6000), None),
        ([(1, 6000)], (8, 100), None),
        ([(8, 100), (1, 6000)], (1, 5000), 1),
        ([(8, 100), (1, 6000)], (1, 200), 0),
        ([], (1, 5), None),
    ],
)
def test_sequences_share_a_batch_where_padding_costs_less_than_a_pass(
    batches: list[Shape], arrival: Shape, place: int | None
) -> None:
    assert BatchPolicy().place(batches, arrival, BatchLimits(2048)) == place


def test_batches_merge_and_split_by_the_same_measure_with_hysteresis() -> None:
    policy = BatchPolicy()
    assert policy.merge([(1, 600), (8, 5000), (2, 700)], BatchLimits(2048)) == (0, 2)
    assert policy.merge([(1, 600), (2, 5000)], BatchLimits(2048)) is None
    assert policy.split([100] * 8 + [6000], BatchLimits(2048)) == 100
    assert policy.split([100] * 8 + [250], BatchLimits(2048)) is None
    assert policy.split([100] * 8 + [6000], BatchLimits(2048, copyable_tokens=9 * 6000 - 1)) is None
    for gap in range(0, 4000, 50):
        merged = policy.merge([(1, 100), (1, 100 + gap)], BatchLimits(2048))
        assert merged is None or policy.split([100, 100 + gap], BatchLimits(2048)) is None


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

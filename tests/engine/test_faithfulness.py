"""What comes out of our loop is what `mlx_lm.generate` says, token for token, whoever runs beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import mlx.core as mx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from greenroom.engine.batch import batch as batch_module
from greenroom.engine.batch.batch import Batch
from greenroom.engine.batch.compaction import CompactionPolicy
from greenroom.engine.kv_cache import caches
from greenroom.engine.prefix_cache.prefix_cache import PrefixCache
from greenroom.engine.scheduler import running_batches
from greenroom.engine.scheduler.batch_policy import BatchPolicy
from greenroom.engine.scheduler.prefill_policy import PrefillPolicy
from greenroom.schemas.events import Failed, Finished, PromptProgress
from greenroom.tests.support.text_engines import Driver, expected, loaded
from greenroom.tests.support.tiny_kinds import FURTHER, VOCABULARY
from greenroom.tests.support.tiny_models import FAMILIES, SPECIAL_TOKENS

ALL_KINDS = (*FAMILIES, "ministral", "granite", "lfm2")
"""With interleaved sliding windows, and with a hybrid of convolutions and attention."""

UNUSUAL_KINDS = ("qwen3_5", "llama4", "gemma2")
"""Of those beyond, what every run looks at."""

FEW_KINDS = ("qwen3", "gemma3", "lfm2")
"""One for each sort of cache; the long run has all."""

LONG_KINDS = tuple(kind for kind in ALL_KINDS if kind not in FEW_KINDS)

EXAMPLES = 60
"""Schedules of a long run, for each kind."""

TIE = 1e-3
"""Logits that are nearer to each other may fall either way: sums are made in another order in a batch."""

tokens = st.integers(len(SPECIAL_TOKENS), VOCABULARY - 1)
lengths = st.sampled_from([1, 2, 3, 17, 31, 32, 33, 34, 70, 150])
"""Around the sliding window of 32, and beyond several of them."""


@attrs.frozen
class Visit:
    """A row's stay in the batch.

    Args:
        at: Step before which it is submitted.
        cancelled: Step before which it is cancelled, if it is still there.
    """

    at: int
    prompt: tuple[int, ...]
    count: int
    cancelled: int | None


@st.composite
def visits(draw: st.DrawFn) -> Visit:
    seed = draw(tokens)
    length = draw(lengths)
    span = VOCABULARY - len(SPECIAL_TOKENS)
    prompt = tuple(len(SPECIAL_TOKENS) + (seed * 31 + i * i * 7 + i * seed) % span for i in range(length))
    at = draw(st.integers(0, 40))
    leaves = draw(st.none() | st.integers(1, 30))
    count = draw(st.sampled_from([1, 2, 5, 24, 60]))
    return Visit(at, prompt, count, None if leaves is None else at + leaves)


def drive(driver: Driver, schedule: list[Visit]) -> None:
    """Let rows come and go as scheduled, and run until all are done."""
    pending = sorted(schedule, key=lambda visit: visit.at)
    ids: dict[int, str] = {}
    step = 0
    while len(ids) < len(pending) or driver.engine.has_work:
        for number, visit in enumerate(pending):
            if visit.at == step:
                ids[number] = driver.submit(visit.prompt, visit.count)
            if visit.cancelled == step and number in ids:
                driver.engine.cancel(ids[number])
        driver.step()
        step += 1


def check(folder: Path, driver: Driver, schedule: list[Visit]) -> int:
    """Every row ended as it should, with mlx-lm's tokens; a cancelled one has a beginning of them.

    Returns:
        Answers that took another way where logits tie.
    """
    ties = 0
    ordered = sorted(schedule, key=lambda visit: visit.at)
    for visit, got, events in zip(ordered, driver.tokens, driver.events.values(), strict=True):
        last = events[-1]
        assert isinstance(last, Finished)
        assert sum(isinstance(event, Finished | Failed) for event in events) == 1
        assert last.usage.generated == len(got)
        if last.reason == "length":
            assert len(got) == visit.count
        else:
            assert (last.reason, visit.cancelled is None) == ("cancelled", False)
        if got != expected(folder, visit.prompt, visit.count, driver.kv_bits)[: len(got)]:
            assert driver.kv_bits is None
            assert shortfall(folder, visit.prompt, got) < TIE
            ties += 1
    return ties


def shortfall(folder: Path, prompt: Sequence[int], got: Sequence[int]) -> float:
    """How far the logits of an answer stay behind the largest, in one plain pass over prompt and answer."""
    model, _ = loaded(folder)
    logits = model(mx.array([[*prompt, *got[:-1]]]))[0, len(prompt) - 1 :].astype(mx.float32)
    chosen = mx.take_along_axis(logits, mx.array(list(got))[:, None], axis=-1)[:, 0]
    return float(mx.max(mx.max(logits, axis=-1) - chosen))


def long_too(*kinds: str) -> list[Any]:
    """Kinds of the long run."""
    return [pytest.param(kind, marks=pytest.mark.soak) for kind in kinds]


@pytest.mark.parametrize("kind", [*FEW_KINDS, *long_too(*LONG_KINDS)])
def test_a_lone_row_is_mlx_lms(tiny_model: Callable[..., Path], kind: str) -> None:
    folder = tiny_model(kind)
    driver = Driver(folder)
    prompt = tuple(range(100, 140))
    driver.submit(prompt, 50)
    driver.run()
    assert driver.tokens == [expected(folder, prompt, 50)]


@attrs.frozen
class Regime:
    """How an engine is set up: whatever it is, nobody may tell by the tokens.

    Args:
        least: Tokens of a slice, whatever they cost.
        spread: How many times that a slice may be.
        idle_ms: What a slice may cost while nothing decodes.
        stall: Decode steps that a slice may cost beside running rows.
        compaction_threshold: Wasted steps before rows that have left are cut out.
        reluctance: Small values have groups split and merge all the time.
        regroup: Steps between two looks at the groups.
        prefixes: Bytes for what is remembered of prompts.
    """

    least: int
    spread: int
    idle_ms: float
    stall: float
    compaction_threshold: float
    reluctance: float
    regroup: int
    prefixes: int

    def driver(self, folder: Path, patch: pytest.MonkeyPatch) -> Driver:
        """An engine of that kind."""
        policy = PrefillPolicy(
            max_stall=self.stall,
            idle_ms=self.idle_ms,
            min_chunk=self.least,
            max_chunk=self.least * self.spread,
        )
        compaction = partial(CompactionPolicy, threshold=self.compaction_threshold)
        patch.setattr(batch_module, "CompactionPolicy", compaction)
        patch.setattr(running_batches, "_STEPS_PER_REARRANGEMENT", self.regroup)
        prefixes = PrefixCache(self.prefixes) if self.prefixes else None
        return Driver(folder, policy, prefixes, BatchPolicy(self.reluctance))


regimes = st.builds(
    Regime,
    least=st.sampled_from([1, 7, 32, 64, 512]),
    spread=st.sampled_from([1, 1, 3, 64]),
    idle_ms=st.sampled_from([0.01, 3.0, 250.0]),
    stall=st.sampled_from([0.0, 0.3, 2.0, float("inf")]),
    compaction_threshold=st.sampled_from([0.0, 0.5, 1.0, 3.0, 1e9]),
    reluctance=st.sampled_from([1e-6, 0.01, 1.5]),
    regroup=st.sampled_from([1, 3, 32]),
    prefixes=st.sampled_from([0, 1 << 18, 1 << 28]),
)


def hold(folder: Path, schedule: list[Visit], regime: Regime) -> int:
    """One schedule, twice if prompts are remembered: what the second one finds is known.

    Returns:
        Answers that took another way where logits tie.
    """
    ties = 0
    with pytest.MonkeyPatch.context() as patch:
        driver = regime.driver(folder, patch)
        for _ in range(2 if regime.prefixes else 1):
            driver.restart()
            drive(driver, schedule)
            ties += check(folder, driver, schedule)
    return ties


@pytest.mark.parametrize("kind", FEW_KINDS)
@settings(max_examples=2)
@given(schedule=st.lists(visits(), min_size=2, max_size=7), regime=regimes)
def test_rows_are_mlx_lms_whoever_comes_and_goes(
    tiny_model: Callable[..., Path], kind: str, schedule: list[Visit], regime: Regime
) -> None:
    hold(tiny_model(kind), schedule, regime)


@pytest.mark.soak
@pytest.mark.parametrize("kind", [*ALL_KINDS, *FURTHER])
def test_rows_are_mlx_lms_whoever_comes_and_goes_for_long(tiny_model: Callable[..., Path], kind: str) -> None:
    folder, count, answers, ties = tiny_model(kind), 0, 0, 0

    @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(schedule=st.lists(visits(), min_size=2, max_size=9), regime=regimes)
    def soak(schedule: list[Visit], regime: Regime) -> None:
        nonlocal count, answers, ties
        ties += hold(folder, schedule, regime)
        answers += len(schedule) * (2 if regime.prefixes else 1)
        count += 1

    soak()
    print(f"{kind}: {count} schedules, {answers} answers, {ties} of them another way where logits tie")
    assert count >= EXAMPLES


CROWD = [
    Visit(0, tuple(range(100, 140)), 32, None),
    Visit(0, tuple(range(300, 320)), 12, None),
    Visit(3, tuple(range(700, 750)), 32, None),
    Visit(9, tuple(range(900, 905)), 24, 20),
    Visit(12, tuple(range(1200, 1240)), 16, None),
]


@pytest.mark.parametrize("kind", [*UNUSUAL_KINDS, *long_too("glm4_moe_lite", "granite_hybrid")])
def test_a_crowd_is_mlx_lms_with_unusual_layers(tiny_model: Callable[..., Path], kind: str) -> None:
    """Two of these crowds, in small slices: the second one is known in part, and groups move all the time."""
    folder = tiny_model(kind)
    hold(folder, CROWD, Regime(16, 2, 1.0, 0.3, 0.5, 1e-6, 5, 1 << 28))


@attrs.define
class Moves:
    """What was done to groups and their caches."""

    splits: int = 0
    merges: int = 0
    compactions: int = 0

    def watch(self, patch: pytest.MonkeyPatch) -> None:
        """Count from now on."""
        split, merge, compact = Batch.split, Batch.merge, Batch.compact

        def counted_split(self_: Batch, longest: int) -> Batch:
            self.splits += 1
            return split(self_, longest)

        def counted_merge(self_: Batch, other: Batch) -> None:
            self.merges += 1
            merge(self_, other)

        def counted_compact(self_: Batch, *, layerwise: bool = False) -> None:
            self.compactions += 0 < self_.active < len(self_.sequences)
            compact(self_, layerwise=layerwise)

        patch.setattr(Batch, "split", counted_split)
        patch.setattr(Batch, "merge", counted_merge)
        patch.setattr(Batch, "compact", counted_compact)


@pytest.mark.parametrize("kind", ["qwen3", *long_too("gemma3", "lfm2")])
@pytest.mark.parametrize("compaction_threshold", [0.0, 1.0, 1e9])
def test_batches_split_merge_and_compact_unseen(
    tiny_model: Callable[..., Path], kind: str, compaction_threshold: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows with ends of their own in groups that move every third step, some of them given up."""
    folder, moves = tiny_model(kind), Moves()
    moves.watch(monkeypatch)
    driver = Regime(512, 1, 250.0, 2.0, compaction_threshold, 1e-6, 3, 0).driver(folder, monkeypatch)
    schedule = [
        Visit(0, tuple(range(100, 108)), 20, None),
        Visit(0, tuple(range(200, 290)), 12, None),
        Visit(0, tuple(range(400, 430)), 31, 17),
        Visit(0, tuple(range(500, 560)), 8, None),
        Visit(4, tuple(range(700, 710)), 33, None),
        Visit(9, tuple(range(800, 930)), 16, None),
    ]
    drive(driver, schedule)
    check(folder, driver, schedule)
    assert moves.splits >= 3
    assert moves.merges >= 3
    assert moves.compactions >= 2


@pytest.mark.parametrize("kind", ["qwen3", *long_too("lfm2")])
def test_prompts_computed_together_lose_one_that_is_cancelled(
    tiny_model: Callable[..., Path], kind: str
) -> None:
    """It must not be computed on, nor be remembered with what its neighbours' steps leave in the cache."""
    folder = tiny_model(kind)
    driver = Driver(folder, prefix_cache=PrefixCache(1 << 28))
    prompts = [tuple(range(start, start + 60)) for start in (100, 200, 300)]
    for prompt in prompts:
        driver.submit(prompt, 40)
    driver.step()
    assert driver.engine.statistics().prefilled == 3
    driver.engine.cancel("1")
    driver.step()
    (joined,) = driver.engine.statistics().batches
    assert joined[0] == 2
    driver.run()
    assert [len(tokens) for tokens in driver.tokens] == [40, 0, 40]
    again = (*prompts[1], 5, 6)
    driver.submit(again, 30)
    driver.run()
    for prompt, tokens in zip(
        (prompts[0], prompts[2], again), driver.tokens[::2] + driver.tokens[3:], strict=True
    ):
        assert tokens == expected(folder, prompt, len(tokens))


@pytest.mark.parametrize("kind", ["gemma3", *long_too("qwen3")])
def test_embedded_rows_among_others(tiny_model: Callable[..., Path], kind: str) -> None:
    """Prompts that come as embeddings share groups with token ids; one leaves in the middle of its prompt."""
    folder = tiny_model(kind)
    model, _ = loaded(folder)
    driver = Driver(folder, PrefillPolicy(min_chunk=16, max_chunk=16), PrefixCache(1 << 28))
    prompts = [
        tuple(range(start, start + length)) for start, length in ((100, 40), (300, 90), (500, 40), (700, 25))
    ]
    for index, prompt in enumerate(prompts):
        if index % 2:
            driver.submit(prompt, 30)
        else:
            embeddings = model.model.embed_tokens(mx.array(prompt))
            driver.submit([9] * (len(prompt) - 1) + [prompt[-1]], 30, embeddings=embeddings)
        if index == 2:
            driver.step()
            driver.step()
            driver.engine.cancel("2")
    driver.run()
    wanted = [expected(folder, prompt, 30) for prompt in prompts]
    assert driver.tokens == [*wanted[:2], [], wanted[3]]
    driver.submit([9] * 39 + [prompts[0][-1]], 30)
    driver.run()
    assert driver.tokens[4] == expected(folder, tuple([9] * 39 + [prompts[0][-1]]), 30)


def test_code_that_fails_with_several_rows_decodes_them_side_by_side(tiny_model: Callable[..., Path]) -> None:
    folder = tiny_model("gpt_bigcode")
    driver = Driver(folder)
    drive(driver, CROWD)
    check(folder, driver, CROWD)


def is_faithful(folder: Path) -> bool:
    driver = Driver(folder)
    drive(driver, CROWD)
    ordered = sorted(CROWD, key=lambda visit: visit.at)
    return all(
        got == expected(folder, visit.prompt, visit.count)[: len(got)]
        for visit, got in zip(ordered, driver.tokens, strict=True)
    )


@pytest.fixture(scope="module", params=["gemma3", *long_too("qwen3", "llama", "glm4", "mistral")])
def folder(request: pytest.FixtureRequest, tiny_model: Callable[..., Path]) -> Iterator[Path]:
    """A model whose crowd comes out right as soon as nothing is planted any more."""
    folder = tiny_model(request.param)
    yield folder
    assert is_faithful(folder)


def test_a_lost_prompt_token_shows(folder: Path) -> None:
    """Planted: the slice that a prompt is computed in begins one token late."""
    from greenroom.engine.scheduler.prefill_request import PrefillRequest

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            PrefillRequest, "remaining", property(lambda self: len(self.sequence.prompt) - 2 - self.computed)
        )
        assert not is_faithful(folder)


def test_a_mask_that_is_off_by_one_shows(folder: Path) -> None:
    """Planted: batched rows see one position of their padding, or miss their first token."""
    merge = caches.merge

    for shift in (-1, 1):

        def shifted(plain: Any, shift: int = shift, **how: bool) -> Any:
            cache = merge(plain, **how)
            for layer in cache:
                layer.left_padding = layer.left_padding + shift
            return cache

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(caches, "merge", shifted)
            assert not is_faithful(folder)


def test_a_stale_cache_row_shows(folder: Path) -> None:
    """Planted: when rows are cut out, the last of the cache stays where it was and its neighbour goes."""
    keep_rows = caches.filter_rows

    def stale(cache: Any, rows: list[int], **how: bool) -> None:
        keep_rows(cache, [*rows[:-1], max(rows[-1] - 1, 0)], **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(caches, "filter_rows", stale)
        assert not is_faithful(folder)


def test_progress_grows_to_the_whole_prompt(tiny_model: Callable[..., Path]) -> None:
    driver = Driver(tiny_model("qwen3"), PrefillPolicy(min_chunk=64, max_chunk=64))
    driver.submit(range(100, 300), 4)
    driver.run()
    progress = [event for event in driver.events["0"] if isinstance(event, PromptProgress)]
    assert [event.processed for event in progress] == [64, 128, 192, 200]
    assert {event.total for event in progress} == {200}

"""Tests of batches: sequences join, leave and move between batches without a change in their tokens."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as GenericSequence
from pathlib import Path

import attrs
import pytest

from greenroom.engine.text.batch import Batch
from greenroom.engine.text.prefix_cache.prefix_cache import PrefixCache
from greenroom.engine.text.scheduler.prefill_policy import PrefillPolicy
from greenroom.engine.text.sequence import Sequence
from greenroom.engine.text.text_engine import TextEngine
from greenroom.tests.support.engines.schedules import (
    OVERLAPPING,
    EngineSetup,
    ScheduledRequest,
    check_answers,
    run_schedule,
    soak_only,
)
from greenroom.tests.support.engines.text_engines import Driver, QuantizedCacheModel, expected, loaded

TinyModel = Callable[..., Path]
PROMPT = tuple(range(100, 140))
OTHER = tuple(range(500, 520))


@attrs.define
class BatchOperations:
    """Counts of operations on batches and their caches."""

    splits: int = 0
    merges: int = 0
    compactions: int = 0

    def watch(self, patch: pytest.MonkeyPatch) -> None:
        """Count operations until the patch is undone."""
        split, merge, compact = Batch.split, Batch.merge, Batch.compact

        def counted_split(self_: Batch, sequences: GenericSequence[Sequence]) -> Batch:
            self.splits += 1
            return split(self_, sequences)

        def counted_merge(self_: Batch, other: Batch) -> None:
            self.merges += 1
            merge(self_, other)

        def counted_compact(self_: Batch, *, layerwise: bool = False) -> None:
            self.compactions += 0 < self_.active < len(self_.sequences)
            compact(self_, layerwise=layerwise)

        patch.setattr(Batch, "split", counted_split)
        patch.setattr(Batch, "merge", counted_merge)
        patch.setattr(Batch, "compact", counted_compact)


@pytest.mark.parametrize("kind", ["qwen3", *soak_only("gemma3", "lfm2")])
@pytest.mark.parametrize("compaction_threshold", [0.0, 1.0, 1e9])
def test_batches_split_merge_and_compact_unseen(
    tiny_model: Callable[..., Path], kind: str, compaction_threshold: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sequences of different lengths in batches that are rearranged every third step; some are cancelled."""
    folder, operations = tiny_model(kind), BatchOperations()
    operations.watch(monkeypatch)
    driver = EngineSetup(512, 1, 250.0, 2.0, compaction_threshold, 1e-6, 3, 0).driver(folder, monkeypatch)
    schedule = [
        ScheduledRequest(0, tuple(range(100, 108)), 20, None),
        ScheduledRequest(0, tuple(range(200, 290)), 12, None),
        ScheduledRequest(0, tuple(range(400, 430)), 31, 17),
        ScheduledRequest(0, tuple(range(500, 560)), 8, None),
        ScheduledRequest(4, tuple(range(700, 710)), 33, None),
        ScheduledRequest(9, tuple(range(800, 930)), 16, None),
    ]
    run_schedule(driver, schedule)
    check_answers(folder, driver, schedule)
    # How often depends on what steps were measured to cost.
    assert operations.splits
    assert operations.merges
    assert operations.compactions


@pytest.mark.parametrize("kind", ["qwen3", *soak_only("lfm2")])
def test_prompts_computed_together_lose_one_that_is_cancelled(
    tiny_model: Callable[..., Path], kind: str
) -> None:
    """The prompt is neither computed further nor cached with tokens of its neighbours' steps."""
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


def test_code_that_fails_with_several_sequences_decodes_them_side_by_side(
    tiny_model: Callable[..., Path],
) -> None:
    folder = tiny_model("gpt_bigcode")
    driver = Driver(folder)
    run_schedule(driver, OVERLAPPING)
    check_answers(folder, driver, OVERLAPPING)


def test_caches_that_cannot_share_a_batch_decode_side_by_side(tiny_model: TinyModel) -> None:
    def tokens_of(*prompts: GenericSequence[int]) -> list[list[int]]:
        driver = Driver(tiny_model("qwen3"))
        model, _ = loaded(tiny_model("qwen3"))
        driver.engine = TextEngine(QuantizedCacheModel(model), driver.output_processor)
        for prompt in prompts:
            driver.submit(prompt, 30)
        driver.run()
        return driver.tokens

    assert tokens_of(PROMPT, OTHER) == [*tokens_of(PROMPT), *tokens_of(OTHER)]


@pytest.mark.deep
def test_sequences_of_very_different_length_do_not_share_a_cache(tiny_model: TinyModel) -> None:
    folder = tiny_model("qwen3")
    driver = Driver(folder, PrefillPolicy(min_chunk=32))  # done while the others run, whatever it costs
    long = tuple(100 + i * 7 % 1900 for i in range(1500))
    short = [PROMPT, OTHER] * 4
    for prompt in short:
        driver.submit(prompt, 250)
    driver.submit(long, 40)
    sizes: set[int] = set()
    while driver.engine.has_work:
        driver.step()
        sizes.add(len(driver.engine.statistics().batches))
    assert max(sizes) == 2
    assert driver.tokens == [*(expected(folder, prompt, 250) for prompt in short), expected(folder, long, 40)]

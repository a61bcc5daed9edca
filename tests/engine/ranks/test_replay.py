"""Tests that parts of a model, with their own caches, compute the tokens of the whole model."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import msgspec
import pytest

from greenroom.engine.kv_cache.caches import Batching, restrict
from greenroom.engine.loading.batching import decide_batching
from greenroom.engine.loading.load_model import load_text_lazily
from greenroom.engine.loading.read_weights import read_weights, weight_bytes
from greenroom.engine.ranks.divided_model import (
    IndivisibleError,
    Part,
    even_split,
    layers_of,
    shard,
    trace_chain,
)
from greenroom.engine.ranks.replay import Follower, Leader, Link
from greenroom.engine.resources.device_errors import DeviceError
from greenroom.engine.text.prefix_cache.prefix_cache import PrefixCache
from greenroom.schemas.messages.generation import GenerationParameters
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.engines.ranked_engines import quantized
from greenroom.tests.support.engines.text_engines import GREEDY, Driver, loaded

DEEP = (("qwen3", 2), ("qwen3", 3), ("qwen3_next", 3), ("mixtral", 2), ("quantized", 2), ("gpt_oss", 2))
SEEDED = GenerationParameters(temperature=1.0, seed=5)


class NearLink(Link):
    """A place in a ring within one process, where the others repeat a plan before it returns.

    Args:
        boxes: What was sent to each rank and not received yet.
    """

    def __init__(self, rank: int, boxes: list[deque[mx.array]]) -> None:
        self.rank, self.size, self._boxes = rank, len(boxes), boxes
        self.followers: list[Follower] = []
        self._plan = b""

    def send(self, array: mx.array) -> mx.array:
        self._boxes[self.rank - 1].append(array)
        self._repeat(self._plan)
        return array

    def receive(self, shape: Sequence[int], dtype: mx.Dtype) -> mx.array:
        received = self._boxes[self.rank].popleft()
        assert (received.shape, received.dtype) == (shape, dtype)
        return received

    def send_plan(self, plan: bytes) -> None:
        self._plan = plan
        if msgspec.msgpack.decode(plan)[-1][0] != "forward":  # whose tokens follow
            self._repeat(plan)

    def _repeat(self, plan: bytes) -> None:
        for follower in reversed(self.followers):
            follower.repeat(plan)


def parts_of(folder: Path, ranks: int) -> tuple[Any, list[int]]:
    """Return the model of rank 0, with all ranks in this process, and the bytes of each rank's weights."""
    boxes: list[deque[mx.array]] = [deque() for _ in range(ranks)]
    links, models, sizes = [NearLink(rank, boxes) for rank in range(ranks)], [], []
    for link in links:
        model = load_text_lazily(folder, Settings())
        chain = trace_chain(model)
        part = Part(model, chain, *layers_of(link.rank, even_split(len(chain.layers), ranks)))
        sizes.append(weight_bytes(model))
        read_weights(model, None, lambda fraction: None, lambda: False)
        models.append((model, part))
        if link.rank:
            links[0].followers.append(Follower(part, link, lambda: None, lambda seen: None))
    Leader(*models[0], links[0])
    decide_batching(models[0][0], folder, 1.0, 0.1)
    return models[0][0], sizes


def answers(driver: Driver, streams: int) -> list[list[list[int]]]:
    """Return the tokens of streams that come and go, and of prompts whose beginnings are cached."""
    first = list(range(20, 90))
    driver.submit(first, 12)
    driver.run()
    found = [[*driver.tokens]]
    driver.restart()
    for index in range(streams):
        prompt = [*first, *range(100, 130 + 9 * index)] if index % 3 else list(range(30 + index, 60 + index))
        driver.submit(prompt, 3 + index, SEEDED if index % 2 else GREEDY)
        driver.step()
    driver.run()
    return [*found, [*driver.tokens]]


@pytest.mark.parametrize(
    ("kind", "ranks"),
    [
        ("qwen3_next", 2),
        *(pytest.param(*each, marks=pytest.mark.deep) for each in DEEP),
    ],
)
def test_parts_compute_the_tokens_of_the_whole(
    kind: str, ranks: int, tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    folder = tiny_model("llama" if kind == "quantized" else kind)
    if kind == "quantized":
        folder = quantized(folder, tmp_path)
    elif ranks > 2:
        folder = tiny_model(kind, num_hidden_layers=4)
    model, sizes = parts_of(folder, ranks)
    whole, divided = (Driver(folder, prefix_cache=PrefixCache(1 << 24), model=each) for each in (None, model))
    streams = 4 if kind == "qwen3_next" else 8
    assert answers(divided, streams) == answers(whole, streams)
    hits = [each.engine.prefix_cache.statistics().hits for each in (divided, whole)]  # type: ignore[union-attr]
    assert hits[0] == hits[1] > 0
    assert max(sizes) < 0.7 * weight_bytes(loaded(folder)[0])
    with pytest.raises(DeviceError, match="the pass of rank 0 failed"):  # which has no caches of its own
        model(mx.array([[1]]), cache=model.make_cache()[:1])


def test_choices_whose_caches_share_no_batch_are_copied_in_all_parts(tiny_model: Callable[..., Path]) -> None:
    folder = tiny_model("qwen3")
    model, _ = parts_of(folder, 2)
    restrict(model, Batching(prefill=False, decode=False))
    whole, divided = Driver(folder), Driver(folder, model=model)
    for driver in (whole, divided):
        driver.submit(range(20, 60), 12, GenerationParameters(temperature=1.0, seed=5, n=3))
        driver.run()
    assert divided.tokens == whole.tokens


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("gemma3n", "more than the hidden state"), ("gemma2", "mends of gemma2's batches")],
)
def test_what_is_no_chain_is_refused(kind: str, reason: str, tiny_model: Callable[..., Path]) -> None:
    with pytest.raises(IndivisibleError, match=reason):
        trace_chain(load_text_lazily(tiny_model(kind), Settings()))


class Ranks(int):
    """Ranks that no transfer joins: mlx-lm asks them for their number alone as it divides layers."""

    def size(self) -> int:
        return self

    def rank(self) -> int:
        return 0


@pytest.mark.parametrize(
    ("kind", "changes", "reason"),
    [
        ("mixtral", {}, "mlx-lm cannot shard its architecture"),
        ("llama", {"intermediate_size": 129}, "do not divide by 2: Cannot shard the output of size 129"),
        ("gpt_oss", {"intermediate_size": 63}, "do not divide by 2: .*attempting 2 splits along axis 1"),
        ("quantized", {}, "do not divide by 8: .*quantization group size 32"),
        ("qwen3_5", {}, "shards its head, too"),
    ],
)
def test_what_no_heads_can_share_is_refused_before_its_weights_are_read(
    kind: str, changes: dict[str, Any], reason: str, tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    folder = tiny_model("llama" if kind == "quantized" else kind, **changes)
    model = load_text_lazily(quantized(folder, tmp_path) if kind == "quantized" else folder, Settings())
    with pytest.raises(IndivisibleError, match=reason):
        shard(model, trace_chain(model), Ranks(8 if kind == "quantized" else 2))

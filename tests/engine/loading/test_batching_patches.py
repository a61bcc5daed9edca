"""Tests of batching patches: rows of unequal length give the same results in a batch as alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import mlx.core as mx
import pytest

from greenroom.engine.kv_cache import caches
from greenroom.engine.loading.batching_patches import KNOWN_FAULTS, KnownFault, patch_for_batching
from greenroom.tests.support.engines.schedules import deep_only, soak_only

TinyModel = Callable[..., Path]

MENDED = ("nemotron_h", "rwkv7", "baichuan_m1", "longcat_flash_ngram", "afm7", "recurrent_gemma", "gemma2")
"""One architecture for each kind of fault; the long run covers all."""

ALSO_MENDED = soak_only("mamba", "falcon_mamba", "jamba", "olmo_hybrid", "bailing_moe_linear")

STEPS = 3

LARGEST_DIFFERENCE = 1e-4
"""Tolerance for logits, relative to their spread, since batches sum in a different order."""


@attrs.frozen
class Row:
    """A prompt of a batch.

    Args:
        cached: Number of tokens in its cache before the batch is made.
        joins: Whether it is computed alone and joins for decoding.
    """

    length: int
    cached: int = 0
    joins: bool = False

    @property
    def prompt(self) -> list[int]:
        return [10 + (self.length * 37 + place * place * 7) % 2000 for place in range(self.length)]


BATCHES: Mapping[str, Sequence[Row]] = {
    "padded, beyond a window, and rows that join, one of them empty": (
        Row(41),
        Row(8),
        Row(70),
        Row(24, joins=True),
        Row(1, joins=True),
    ),
    "behind prefixes, one empty, one with nothing left": (Row(41, 20), Row(30), Row(50, 3), Row(12, 11)),
    "short": (Row(2), Row(3, 1), Row(5)),
}


def unpatched(folder: Path) -> Any:
    from mlx_lm.utils import load_model

    return load_model(folder)[0]


def prefilled(model: Any, tokens: Sequence[int]) -> caches.Cache:
    cache = caches.new_cache(model)
    if tokens:
        mx.eval(model(mx.array([tokens]), cache=cache))
    return cache


def alone(model: Any, row: Row) -> mx.array:
    """Return the logits `[steps, vocabulary]` after a prompt and the steps that follow."""
    cache = prefilled(model, row.prompt[:-1])
    inputs = [row.prompt[-1], *range(100, 99 + STEPS)]
    return mx.concatenate([model(mx.array([[token]]), cache=cache)[0] for token in inputs])


def together(model: Any, rows: Sequence[Row]) -> mx.array:
    """Return the logits `[rows, steps, vocabulary]`, with joining rows last."""
    first = [row for row in rows if not row.joins]
    joining = [row for row in rows if row.joins]
    cache = caches.merge([prefilled(model, row.prompt[: row.cached]) for row in first])
    left = [row.prompt[row.cached : -1] for row in first]
    longest = max(len(tokens) for tokens in left)
    padding = [longest - len(tokens) for tokens in left]
    caches.finalize(cache)
    caches.prepare(cache, [len(tokens) for tokens in left], padding)
    model(mx.array([[*tokens, *[9] * pad] for tokens, pad in zip(left, padding, strict=True)]), cache=cache)
    caches.finalize(cache)
    if joining:
        caches.extend(cache, caches.merge([prefilled(model, row.prompt[:-1]) for row in joining]))
    steps = [
        [row.prompt[-1] for row in (*first, *joining)],
        *([token] * len(rows) for token in range(100, 99 + STEPS)),
    ]
    return mx.concatenate([model(mx.array(tokens)[:, None], cache=cache) for tokens in steps], axis=1)


@pytest.mark.parametrize("kind", [*MENDED[::2], *deep_only(*MENDED[1::2]), *ALSO_MENDED])
def test_padded_rows_are_computed_as_each_alone(tiny_model: TinyModel, kind: str) -> None:
    folder = tiny_model(kind)
    reference, model = unpatched(folder), unpatched(folder)
    assert patch_for_batching(model)
    for name, rows in BATCHES.items():
        wanted = mx.stack([alone(reference, row) for row in rows])
        difference = mx.max(mx.abs(together(model, rows) - wanted)) / mx.std(wanted)
        assert float(difference) < LARGEST_DIFFERENCE, name


def test_a_file_that_is_another_than_the_known_one_is_left_alone(
    tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mend(model: Any) -> None:
        raise AssertionError

    monkeypatch.setitem(KNOWN_FAULTS, "mamba", KnownFault("0123456789abcdef", mend))
    assert not patch_for_batching(unpatched(tiny_model("mamba")))

"""Texts a second of the embedding engine beside the library's bare forward pass, and what both hold.

    PYTHONPATH=.src python notes/embedding_speeds.py FOLDER [FIGURE]... [--texts N] [--words N] [--pairs N]

bare:      the engine over the library's bare forward pass over the same tokens, sorted by length, at the
           batch size that is fastest for it
peers:     the engine, with its adapter, over the loops of mlx-vlm's server and of mlx-embeddings, which put
           all texts of a request into one batch: requests of 64 texts, as many as make up the same texts
memory:    MLX's peak beside the weights: all texts in one request, in 50 at once, and the peers' likewise
estimates: what a pass was reckoned to take over what MLX had at its peak, by rows and width

Both sides in turns in one process, on this thread; medians of the pairs' ratios, with spread. What a
processor computes is measured in its time, which other programs do not take from it.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from greenroom.actors.engines.engine_protocol import ModelFolder
from greenroom.actors.engines.kinds import open_adapter, open_engine
from greenroom.engine.catalog.kinds.detection import detect
from greenroom.engine.encoding.rows import Row, pad
from greenroom.engine.memory.account import MemoryAccount
from greenroom.schemas.messages.requests import EmbeddingInput, InferenceRequest
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.texts.random_texts import random_texts

BATCH_SIZES = (8, 16, 32, 64, 128, 256, 512)
REQUEST_TEXTS = 64
CONCURRENT = 50


class Measured:
    """One model, loaded once for us and once by the library."""

    def __init__(self, folder: Path, texts: Sequence[str]) -> None:
        from mlx_vlm.embedding_loader import load_embedding_model
        from mlx_vlm.models.pooling import read_pooling_config
        from mlx_vlm.utils import load_processor

        model, settings = ModelFolder(folder.name, folder, detect(folder)), Settings()
        self.adapter: Any = open_adapter(model, settings, "")
        nothing, never = (lambda _: None), (lambda: False)
        self.engine: Any = open_engine(model, settings, nothing, never, MemoryAccount(), self.adapter)
        self.bare_model: Any = load_embedding_model(folder)
        self.bare_model.pooling_config = read_pooling_config(folder)  # type: ignore[no-untyped-call]
        self.processor = load_processor(folder, add_detokenizer=False)
        self.folder = folder
        self.texts = texts
        self.rows: Sequence[Row] = self.prepare(texts).rows

    def prepare(self, texts: Sequence[str]) -> Any:
        """Tokenize texts into the engine's input."""
        return self.adapter.prepare_input(_request(texts))

    def run(self, prepared: Sequence[Any]) -> None:
        """Compute requests that have come at once."""
        for number, one in enumerate(prepared):
            self.engine.submit(_request((), str(number)), one)
        while self.engine.has_work:
            self.engine.step()

    def bare(self, size: int) -> None:
        """Compute all rows by the library's model alone, batches of like length."""
        rows = sorted(self.rows, key=lambda row: len(row.tokens), reverse=True)
        for at in range(0, len(rows), size):
            ids, mask = pad(
                [row.tokens for row in rows[at : at + size]], self.bare_model.config.pad_token_id or 0
            )
            np.array(self.bare_model(mx.array(ids), attention_mask=mx.array(mask)).text_embeds)
            mx.clear_cache()

    def mlx_vlm(self, texts: Sequence[str]) -> None:
        """Embed texts as the route of mlx-vlm's server does."""
        from mlx_vlm.server.embeddings import _embed

        _embed(self.bare_model, self.processor, list(texts))

    def mlx_embeddings(self, texts: Sequence[str]) -> None:
        """Embed texts as mlx-embeddings' own function does."""
        import mlx_embeddings  # type: ignore[import-untyped]

        if not hasattr(self, "other"):
            self.other = mlx_embeddings.load(str(self.folder))
        model, tokenizer = self.other
        answer = mlx_embeddings.generate(model, tokenizer, texts=list(texts), max_length=128)
        np.array(answer.text_embeds)


def compare_bare(measured: Measured, pairs: int) -> None:
    """Print the ratio to the library's bare pass."""
    times = {size: _time(lambda size=size: measured.bare(size)) for size in BATCH_SIZES}  # type: ignore[misc]
    best = min(times, key=lambda size: times[size])
    print("bare, by batch size:", {size: round(len(measured.rows) / took) for size, took in times.items()})
    prepared = measured.prepare(measured.texts)
    ratios = _ratios(lambda: measured.bare(best), lambda: measured.run([prepared]), pairs)
    _print(f"engine over bare pass of {best} rows", ratios)
    many = [measured.prepare(texts) for texts in _parts(measured.texts, CONCURRENT)]
    ratios = _ratios(lambda: measured.bare(best), lambda: measured.run(many), pairs)
    _print(f"… as {CONCURRENT} requests at once", ratios)


def compare_peers(measured: Measured, pairs: int) -> None:
    """Print the ratios to the loops of others, tokenizing included."""
    requests = _parts(measured.texts, len(measured.texts) // REQUEST_TEXTS)

    def ours() -> None:
        measured.run([measured.prepare(texts) for texts in requests])

    for name, embed in (("mlx-vlm", measured.mlx_vlm), ("mlx-embeddings", measured.mlx_embeddings)):
        ratios = _ratios(lambda embed=embed: [embed(texts) for texts in requests], ours, pairs)  # type: ignore[misc]
        _print(f"texts/s over {name}'s loop, requests of {REQUEST_TEXTS} texts", ratios)


def compare_memory(measured: Measured, _: int) -> None:
    """Print peaks beside the weights."""
    prepared = measured.prepare(measured.texts)
    many = [measured.prepare(texts) for texts in _parts(measured.texts, CONCURRENT)]
    sides: dict[str, Callable[[], object]] = {
        "one request": lambda: measured.run([prepared]),
        f"{CONCURRENT} requests": lambda: measured.run(many),
        "mlx-vlm": lambda: measured.mlx_vlm(measured.texts),
        "mlx-embeddings": lambda: measured.mlx_embeddings(measured.texts),
    }
    for name, embed in sides.items():
        mx.clear_cache()
        weights = mx.get_active_memory()
        mx.reset_peak_memory()
        embed()
        peak, kept = mx.get_peak_memory() - weights, mx.get_cache_memory()
        print(f"{name}: peak {peak / 1e6:.1f} MB beside the weights, {kept / 1e6:.1f} MB kept afterwards")


def compare_estimates(measured: Measured, _: int) -> None:
    """Print how a pass's estimate compares with its peak."""
    model = measured.engine._loaded_model()
    longest = measured.adapter._rows.longest
    for rows, width in ((1, 16), (1, longest), (32, 16), (32, longest // 4), (16, longest)):
        batch = [Row(np.full(width, 50, np.int32)) for _ in range(rows)]
        mx.clear_cache()
        before = mx.get_active_memory()
        mx.reset_peak_memory()
        model.compute(batch)
        peak, reckoned = mx.get_peak_memory() - before, model.batch_bytes(rows, width)
        print(f"{rows:3} x {width:5}: {reckoned / peak:.2f} ({peak / 1e6:.2f} MB)")


def _request(texts: Sequence[str], request_id: str = "r") -> InferenceRequest:
    return InferenceRequest(request_id, ModelKey("m"), EmbeddingInput(tuple(texts), truncate=True))


def _parts(texts: Sequence[str], count: int) -> list[Sequence[str]]:
    return [texts[at::count] for at in range(count)]


def _time(run: Callable[[], object]) -> float:
    clock = time.process_time if mx.default_device() == mx.Device(mx.cpu) else time.perf_counter
    began = clock()
    run()
    return clock() - began


def _ratios(theirs: Callable[[], object], ours: Callable[[], object], pairs: int) -> list[float]:
    """Return their time over ours, in turns."""
    ours(), theirs()
    ratios = []
    for pair in range(pairs):
        first, second = (ours, theirs) if pair % 2 else (theirs, ours)
        times = (_time(first), _time(second))
        ratios.append(times[1] / times[0] if pair % 2 else times[0] / times[1])
    return ratios


def _print(name: str, ratios: list[float]) -> None:
    low, high = min(ratios), max(ratios)
    print(f"{name}: {statistics.median(ratios):.3f} ({low:.3f}-{high:.3f}), {len(ratios)} pairs", flush=True)


FIGURES = {
    "bare": compare_bare,
    "peers": compare_peers,
    "memory": compare_memory,
    "estimates": compare_estimates,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("figures", nargs="*", default=list(FIGURES))
    parser.add_argument("--texts", type=int, default=5_000)
    parser.add_argument("--words", type=int, default=60)
    parser.add_argument("--pairs", type=int, default=5)
    asked = parser.parse_args()
    texts = list(random_texts(asked.texts, asked.words))
    measured = Measured(asked.folder, texts)
    print(f"{len(texts)} texts of {sum(len(row.tokens) for row in measured.rows)} tokens")
    for figure in asked.figures:
        FIGURES[figure](measured, asked.pairs)


if __name__ == "__main__":
    main()

"""Documents ranked a second, beside mlx-vlm's own loop over the same model.

    PYTHONPATH=.src python notes/rerank_speeds.py FOLDER [PAIRS [DOCUMENTS]]

FOLDER is where the models are made: a cross-encoder and a decoder, small enough for a CPU. Both rank the same
documents of random length in turns, the order reversed in every second pair; a ratio is ours over theirs,
pair by pair. Ours tokenizes, computes and makes events on one thread; theirs is `score_documents`, as its
server calls it. The scores of cross-encoders are compared, too; the prompts of decoders differ (ours is that
of the model's card), so that each side's tokens are shown.
"""

from __future__ import annotations

import importlib
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from greenroom.http.bench.prompts import WORDS

SIZES: Mapping[str, Any] = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2}
KINDS: Mapping[str, Mapping[str, Any]] = {
    "bert-rerank": {**SIZES, "max_position_embeddings": 512},
    "qwen3-rerank": {**SIZES, "max_position_embeddings": 1_024},
}
LONGEST = 20
"""Words of a document."""
QUERY = "what is the weather at the sea like"

Scores = tuple[list[float], int]
Rank = Callable[[list[str]], Scores]


def ours(folder: Path) -> Rank:
    """Return a function that ranks documents with this server's engine."""
    from greenroom.engine.catalog.kinds.detection import detect
    from greenroom.engine.encoding.rerank.open_rerank_engine import open_rerank_engine
    from greenroom.engine.encoding.rerank.rerank_adapter import open_rerank_adapter
    from greenroom.engine.memory.model_load import ModelLoad
    from greenroom.schemas.events.result_events import Score
    from greenroom.schemas.messages.requests import InferenceRequest, ScoreInput
    from greenroom.schemas.model_key import ModelKey
    from greenroom.schemas.settings.settings import Settings

    settings, record = Settings(), detect(folder)
    adapter = open_rerank_adapter(folder, record, settings, folder.name)
    engine = open_rerank_engine(ModelLoad(folder, record, settings))

    def rank(documents: list[str]) -> Scores:
        asked = ScoreInput(tuple((QUERY, document) for document in documents))
        request = InferenceRequest("r", ModelKey("m"), asked)
        prepared = adapter.prepare_input(request)
        engine.submit(request, prepared)
        scores = [0.0] * len(documents)
        while engine.has_work:
            for _, event in engine.step():
                if isinstance(event, Score):
                    scores[event.index] = event.value
        return scores, prepared.prompt_tokens

    return rank


def theirs(folder: Path) -> Rank:
    """Return a function that ranks documents with mlx-vlm's loop."""
    reranking: Any = importlib.import_module("mlx_vlm.server.reranking")
    loader: Any = importlib.import_module("mlx_vlm.reranker_loader")
    config = importlib.import_module("mlx_vlm.utils").load_config(folder)
    model, processor = loader.load_reranker(str(folder))

    def rank(documents: list[str]) -> Scores:
        items = [reranking.RerankItem(text=document) for document in documents]
        query = reranking.RerankItem(text=QUERY)
        scores, tokens = reranking.score_documents(model, processor, config, query, items, None)
        return list(map(float, scores)), int(tokens)

    return rank


def main(home: Path, pairs: int, count: int) -> None:
    """Compare both kinds of models, and print a line for each."""
    from greenroom.engine.loading.libraries import import_encoder_libraries
    from greenroom.tests.support.models.tiny_encoders import make_tiny_encoder

    import_encoder_libraries()
    source = random.Random(1)
    documents = [" ".join(source.choices(WORDS, k=source.randint(1, LONGEST))) for _ in range(count)]
    for kind, changes in KINDS.items():
        folder = home / kind
        if not folder.exists():
            make_tiny_encoder(kind, folder, **changes)
        sides = {"ours": ours(folder), "theirs": theirs(folder)}
        last = {name: rank(documents) for name, rank in sides.items()}
        seconds: dict[str, list[float]] = {name: [] for name in sides}
        for pair in range(pairs):
            for name in sorted(sides, reverse=bool(pair % 2)):
                began = time.perf_counter()
                last[name] = sides[name](documents)
                seconds[name].append(time.perf_counter() - began)
        ratios = sorted(b / a for a, b in zip(seconds["ours"], seconds["theirs"], strict=True))
        speeds = {name: count / statistics.median(times) for name, times in seconds.items()}
        apart = max(abs(a - b) for a, b in zip(last["ours"][0], last["theirs"][0], strict=True))
        print(
            f"{kind}: {speeds['ours']:.0f} documents/s, theirs {speeds['theirs']:.0f}; "
            f"ratio {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}); "
            f"tokens {last['ours'][1]:,} and {last['theirs'][1]:,}; scores apart by {apart:.1e}"
        )


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if not arguments:
        raise SystemExit(__doc__)
    main(Path(arguments[0]), int((arguments[1:] or ["5"])[0]), int((arguments[2:] or ["60"])[0]))

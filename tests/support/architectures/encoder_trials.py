"""Trials that compare the vectors and scores of tiny models with those of the libraries."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import attrs
import numpy as np

from greenroom.engine.catalog.libraries import exports_of, models_of
from greenroom.schemas.problems import ProblemError
from greenroom.tests.support.architectures.encoder_folders import make_encoder_folder
from greenroom.tests.support.engines.embedders import open_embedder
from greenroom.tests.support.engines.rerankers import (
    DOCUMENTS,
    QUERY,
    Reranker,
    library_decisions,
    library_scores,
    score,
)
from greenroom.tests.support.models.tiny_encoders import make_tiny_encoder

Result = Literal["equal", "refused", "library fails", "not made", "differs"]

TOLERANCE = 2e-5
"""Largest accepted difference of a score, or of a component of a vector of length 1."""

LENGTHS = (3, 9, 15)
"""Lengths of the texts in tokens. Longer ones exceed the tiny Gemma 3's window, where the libraries are
wrong.
"""

_LONGEST_REASON = 150


@attrs.frozen(order=True)
class Case:
    """An architecture of a library, and its type of output."""

    library: str
    architecture: str
    makes: Literal["vectors", "scores"]


@attrs.frozen
class Outcome:
    """The result of a trial.

    Args:
        detail: Reason, unless the outputs are equal.
    """

    case: Case
    result: Result
    detail: str = ""


def cases() -> list[Case]:
    """Return all embedding and rerank architectures of the installed libraries."""
    from mlx_vlm.reranker import _RERANKER_KINDS

    embed = {name for name in models_of("mlx_vlm") if "EmbeddingOutput" in _sources("mlx_vlm", name)}
    ranks = {
        name for name in models_of("mlx_vlm") if "SequenceClassificationModel" in exports_of("mlx_vlm", name)
    }
    found = [Case("mlx_vlm", name, "vectors") for name in embed]
    found += [Case("mlx_vlm", name, "scores") for name in ranks | set(_RERANKER_KINDS)]
    found += [Case("mlx_embeddings", name, "vectors") for name in models_of("mlx_embeddings")]
    return sorted(found)


def try_case(case: Case, home: Path) -> Outcome:
    """Compare Greenroom's and the library's outputs for the same tokens."""
    return _try_vectors(case, home) if case.makes == "vectors" else _try_scores(case, home)


def _try_vectors(case: Case, home: Path) -> Outcome:
    try:
        folder = make_encoder_folder(case.library, case.architecture, home)
    except Exception as error:
        return Outcome(case, "not made", _reason(error, home))
    texts = [
        tuple(20 + (7 * number + 13 * at) % 90 for at in range(length))
        for number, length in enumerate(LENGTHS)
    ]
    reference = _library_vectors if case.library == "mlx_vlm" else _extra_vectors

    def own() -> Sequence[Any]:
        embedder = open_embedder(folder)
        together = embedder.embed(texts)
        return [together, np.concatenate([embedder.embed((text,)) for text in texts])]

    return _compared(case, home, own, lambda: reference(folder, texts))


def _try_scores(case: Case, home: Path) -> Outcome:
    kind = {"xlm_roberta": "xlm-roberta"}.get(case.architecture, case.architecture)
    if kind == "qwen3_vl":
        folder = make_encoder_folder("mlx_embeddings", kind, home).rename(home / "qwen3-vl-reranker")
    else:
        folder = make_tiny_encoder(f"{kind}-rerank", home / f"{kind}-rerank")

    def own() -> Sequence[Any]:
        model = Reranker(folder)
        alone = [model.scores(score(documents=(document,)))[0] for document in DOCUMENTS]
        return [np.array(model.scores(score())), np.array(alone)]

    def librarys() -> Any:
        if kind != "qwen3":
            return np.array(library_scores(folder, QUERY, DOCUMENTS))
        rows = Reranker(folder).adapter.prepare_input(score()).rows
        return np.array(library_decisions(folder, [row.tokens.tolist() for row in rows]))

    return _compared(case, home, own, librarys)


def _compared(
    case: Case, home: Path, own: Callable[[], Sequence[Any]], librarys: Callable[[], Any]
) -> Outcome:
    try:
        found = own()
    except ProblemError as error:
        return Outcome(case, "refused", error.problem.detail.partition("could not be loaded: ")[2])
    try:
        expected = librarys()
    except Exception as error:
        return Outcome(case, "library fails", _reason(error, home))
    if not np.isfinite(expected).all():
        return Outcome(case, "library fails", "it computes what is no number")
    worst = max(
        float(np.abs(each - expected).max()) if each.shape == expected.shape else np.inf for each in found
    )
    if worst > TOLERANCE:
        return Outcome(case, "differs", f"by {worst:.2g}")
    spread = min(float(np.abs(expected[0] - other).max()) for other in expected[1:])
    return (
        Outcome(case, "equal")
        if spread > 10 * TOLERANCE
        else Outcome(case, "not made", "all texts come out alike")
    )


def _library_vectors(folder: Path, texts: Sequence[Sequence[int]]) -> Any:
    """Return the vectors that mlx-vlm's own server computes."""
    from mlx_vlm.embedding_loader import load_embedding_model

    pooling: Any = importlib.import_module("mlx_vlm.models.pooling")
    model = load_embedding_model(folder)
    model.pooling_config = pooling.read_pooling_config(folder)
    return _alone(model, texts)


def _extra_vectors(folder: Path, texts: Sequence[Sequence[int]]) -> Any:
    from mlx_embeddings.utils import load_model  # type: ignore[import-untyped]

    return _alone(load_model(folder, path_to_repo=str(folder)), texts)


def _alone(model: Any, texts: Sequence[Sequence[int]]) -> Any:
    import mlx.core as mx

    made = [
        model(mx.array([list(text)]), attention_mask=mx.ones((1, len(text)), mx.int32)).text_embeds[0]
        for text in texts
    ]
    return np.stack([np.array(vector.astype(mx.float32)) for vector in made])


def _sources(library: str, architecture: str) -> str:
    from greenroom.engine.catalog.libraries import library_folder

    root = library_folder(library)
    assert root is not None
    return "".join(path.read_text(encoding="utf-8") for path in (root / "models" / architecture).glob("*.py"))


def _reason(error: Exception, home: Path) -> str:
    words = " ".join(f"{type(error).__name__}: {error}".replace(str(home), "…").split())
    return words if len(words) <= _LONGEST_REASON else words[: _LONGEST_REASON - 1] + "…"

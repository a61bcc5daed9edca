"""The tiny embedding and rerank models are complete folders for all their readers."""

from __future__ import annotations

import pytest

from greenroom.engine.catalog.kind_detection import detect
from greenroom.tests.support.models.tiny_encoders import ENCODERS, RERANKERS, TinyEncoder


@pytest.mark.parametrize("kind", ENCODERS)
def test_the_library_loads_what_is_detected_as_a_model_for_embeddings(
    tiny_encoder: TinyEncoder, kind: str
) -> None:
    folder = tiny_encoder(kind)
    from mlx_vlm.embedding_loader import load_embedding_model

    assert detect(folder).model_type == "embeddings"
    assert load_embedding_model(folder).config.hidden_size == 64


@pytest.mark.parametrize("kind", RERANKERS)
def test_the_library_loads_what_ranks(tiny_encoder: TinyEncoder, kind: str) -> None:
    folder = tiny_encoder(kind)
    from mlx_vlm.reranker_loader import load_reranker

    model, _ = load_reranker(str(folder))
    assert hasattr(model, "classifier") == kind.startswith(("bert", "xlm", "modernbert"))

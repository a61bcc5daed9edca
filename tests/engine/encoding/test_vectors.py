"""Vectors against those of the library, of single texts, and of sentence-transformers' recipes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from greenroom.engine.loading.read_weights import load_arrays
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.engines.embedders import Embedder, embedding_request, failure, open_embedder
from greenroom.tests.support.models.tiny_encoders import ENCODERS, TinyEncoder
from greenroom.tests.support.models.tiny_sentence_files import write_dense, write_modules, write_pooling
from greenroom.tests.support.texts.random_texts import random_texts

TEXTS = random_texts(40)


@pytest.fixture(scope="module", params=ENCODERS)
def embedder(request: pytest.FixtureRequest, tiny_encoder: TinyEncoder) -> Embedder:
    return open_embedder(tiny_encoder(request.param))


def test_vectors_are_those_of_texts_alone_whatever_they_are_computed_with(embedder: Embedder) -> None:
    together = embedder.embed(TEXTS)
    np.testing.assert_allclose(together, embedder.embed_alone(TEXTS), atol=1e-4)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-6)
    assert (
        np.abs(together[0] - together[1]).max() > 0.01
    )  # Otherwise the other assertions would prove nothing.


@pytest.mark.parametrize("kind", ENCODERS)
def test_vectors_are_the_librarys(tiny_encoder: TinyEncoder, kind: str) -> None:
    folder = tiny_encoder(kind)
    texts = [text[:40] for text in TEXTS]  # Longer texts differ with Gemma, see below.
    embedder = open_embedder(folder)
    rows = embedder.adapter.prepare_input(embedding_request(texts)).rows
    import mlx.core as mx
    from mlx_vlm.embedding_loader import load_embedding_model
    from mlx_vlm.models.pooling import read_pooling_config

    model = load_embedding_model(folder)
    model.pooling_config = read_pooling_config(folder)  # type: ignore[no-untyped-call]
    expected = [np.array(model(mx.array(row.tokens)[None]).text_embeds[0]) for row in rows]
    np.testing.assert_allclose(embedder.embed(texts), np.stack(expected), atol=1e-5)


@pytest.mark.deep
def test_tokens_are_those_of_the_models_tokenizer(tiny_encoder: TinyEncoder) -> None:
    from transformers import AutoTokenizer

    for kind in ENCODERS:
        folder = tiny_encoder(kind)
        adapter = open_embedder(folder).adapter
        expected = AutoTokenizer.from_pretrained(folder)(list(TEXTS), truncation=True, max_length=128)
        rows = adapter.prepare_input(embedding_request(TEXTS, truncate=True)).rows
        assert [row.tokens.tolist() for row in rows] == expected["input_ids"]


def test_gemmas_local_layers_see_a_window(tiny_encoder: TinyEncoder) -> None:
    one_layer = {"num_hidden_layers": 1, "sliding_window_pattern": 2}
    embedder = open_embedder(tiny_encoder("gemma3_text", **one_layer))
    import mlx.core as mx

    encode = embedder.engine._loaded_model()._encode  # type: ignore[attr-defined]
    tokens, other = np.full((1, 100), 50, np.int32), np.full((1, 100), 50, np.int32)
    other[0, 60] = 99
    mask = mx.ones((1, 100), mx.int32)
    changed = np.abs(np.array(encode(mx.array(tokens), mask) - encode(mx.array(other), mask))).max(
        axis=(0, 2)
    )
    # A window of 32 covers 16 tokens to each side. Source: transformers, modeling_gemma3.py.
    assert np.flatnonzero(changed > 1e-6).tolist() == list(range(60 - 16, 60 + 16 + 1))


@cache
def library_model(folder: Path) -> Any:
    from mlx_vlm.embedding_loader import load_embedding_model

    return load_embedding_model(folder)


def hidden_of(folder: Path, tokens: Sequence[int]) -> NDArray[np.float32]:
    """Return the library's own hidden states of a text, `[tokens, hidden]`."""
    import mlx.core as mx

    return np.array(library_model(folder)(mx.array([list(tokens)])).last_hidden_state[0])


POOLED: dict[tuple[str, ...], Any] = {
    ("cls",): lambda hidden: hidden[0],
    ("mean",): lambda hidden: hidden.mean(axis=0),
    ("max",): lambda hidden: hidden.max(axis=0),
    ("last",): lambda hidden: hidden[-1],
    ("mean_sqrt",): lambda hidden: hidden.sum(axis=0) / np.sqrt(len(hidden)),
    ("weighted",): lambda hidden: np.average(hidden, axis=0, weights=np.arange(1, len(hidden) + 1)),
    ("cls", "max", "mean"): lambda hidden: np.concatenate([hidden[0], hidden.max(0), hidden.mean(0)]),
}


@pytest.mark.parametrize("modes", POOLED)
def test_tokens_are_pooled_as_the_models_files_tell(
    tiny_encoder: TinyEncoder, tmp_path: Path, modes: tuple[str, ...]
) -> None:
    plain = tiny_encoder("bert")
    folder = Path(shutil.copytree(plain, tmp_path / "model"))
    write_pooling(folder, 64, *modes)
    write_modules(folder, ["Pooling"])  # There is no normalization.
    embedder = open_embedder(folder)
    rows = embedder.adapter.prepare_input(embedding_request(TEXTS[:5])).rows
    expected = [POOLED[modes](hidden_of(plain, row.tokens.tolist())) for row in rows]
    np.testing.assert_allclose(embedder.embed(TEXTS[:5]), np.stack(expected), atol=1e-4, rtol=1e-4)


def test_layers_behind_the_pooling_are_computed(tiny_encoder: TinyEncoder, tmp_path: Path) -> None:

    plain = tiny_encoder("bert")
    folder = Path(shutil.copytree(plain, tmp_path / "model"))
    write_dense(folder / "2_Dense", 64, 24, activation="activation.Tanh", bias=True)
    write_modules(folder, ["Pooling", "Dense"])
    weights = load_arrays(folder / "2_Dense" / "model.safetensors")
    weight, bias = (np.array(weights[f"linear.{name}"]) for name in ("weight", "bias"))
    embedder = open_embedder(folder)
    [row] = embedder.adapter.prepare_input(embedding_request(TEXTS[:1])).rows
    pooled = hidden_of(plain, row.tokens.tolist()).mean(axis=0)
    np.testing.assert_allclose(embedder.embed(TEXTS[:1])[0], np.tanh(weight @ pooled + bias), atol=1e-5)


def test_vectors_are_cut_and_get_length_1_again(embedder: Embedder) -> None:
    whole, cut = embedder.embed(TEXTS[:5]), embedder.embed(TEXTS[:5], dimensions=16)
    expected = whole[:, :16] / np.linalg.norm(whole[:, :16], axis=1, keepdims=True)
    np.testing.assert_allclose(cut, expected, atol=1e-6)


def test_what_is_no_number_fails_its_request_alone(tiny_encoder: TinyEncoder, tmp_path: Path) -> None:
    import mlx.core as mx

    folder = Path(shutil.copytree(tiny_encoder("bert"), tmp_path / "model"))
    weights = load_arrays(folder / "model.safetensors")
    spoiled = weights["embeddings.word_embeddings.weight"]
    spoiled[300] = float("nan")
    mx.save_safetensors(str(folder / "model.safetensors"), weights)
    embedder = open_embedder(folder)
    embedder.submit([(2, 300, 3), (2, 301, 3)], "spoiled")
    embedder.submit([(2, 301, 3)], "whole")
    events = embedder.run()
    problem = failure(events["spoiled"]).problem
    assert (problem.status, problem.code) == (503, "model_broken")
    assert len(events["whole"]) == 2


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_weights_of_16_bits_give_nearly_the_same(tiny_encoder: TinyEncoder, dtype: Any) -> None:
    folder = tiny_encoder("bert")
    exact = open_embedder(folder).embed(TEXTS[:10])
    short = open_embedder(folder, Settings(dtype=dtype)).embed(TEXTS[:10])
    assert (exact * short).sum(axis=1).min() > 0.99


def test_a_folder_that_asks_for_something_unknown_is_not_loaded(
    tiny_encoder: TinyEncoder, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(tiny_encoder("bert"), tmp_path / "model"))
    write_modules(folder, ["Pooling", "CNN"])
    with pytest.raises(ProblemError, match="a module 'CNN'"):
        open_embedder(folder)


def test_an_architecture_that_makes_no_vectors_is_not_loaded(
    tiny_encoder: TinyEncoder, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(tiny_encoder("qwen3"), tmp_path / "model"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "qwen2"}))
    with pytest.raises(ProblemError, match="'qwen2' makes vectors of texts is not known"):
        open_embedder(folder)


def test_a_folder_without_some_of_its_weights_is_not_loaded(
    tiny_encoder: TinyEncoder, tmp_path: Path
) -> None:
    import mlx.core as mx

    folder = Path(shutil.copytree(tiny_encoder("gemma3_text"), tmp_path / "model"))
    weights = load_arrays(folder / "model.safetensors")
    del weights["norm.weight"]
    mx.save_safetensors(str(folder / "model.safetensors"), weights)
    with pytest.raises(ProblemError, match=r"such as model\.norm\.weight"):
        open_embedder(folder)

"""all-MiniLM-L6-v2 over HTTP: the vectors that float64 gives, and pairs in the order of people."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import openai
from numpy.typing import NDArray

from greenroom.tests.real.conftest import Record

NEEDS = ("minilm",)
PAIRS = json.loads(Path(__file__).with_name("minilm.json").read_text(encoding="utf-8"))


def _ranks(values: list[float]) -> NDArray[np.float64]:
    """Return the place of each value in order, from 0; equal ones share the mean of theirs."""
    found = np.array(values)
    below = (found[None] < found[:, None]).sum(1)
    ranks: NDArray[np.float64] = (below + (found[None] <= found[:, None]).sum(1) - 1) / 2
    return ranks


def test_vectors_and_the_order_of_pairs(client: openai.OpenAI, record_property: Record) -> None:
    texts = [text for pair in PAIRS for text in pair["sentences"]]
    answer = client.embeddings.create(model="minilm", input=texts, encoding_format="float")
    vectors = np.array([item.embedding for item in answer.data])
    starts = [start for pair in PAIRS for start in pair["starts"]]
    far = np.abs(vectors[:, :16] - starts).max()
    record_property("largest difference", f"{far:.1g}")
    assert far < 1e-5
    cosines = (vectors[::2] * vectors[1::2]).sum(1)
    assert np.abs(cosines - [pair["cosine"] for pair in PAIRS]).max() < 1e-5
    judged = _ranks([pair["score"] for pair in PAIRS])
    rank = np.corrcoef(_ranks(cosines.tolist()), judged)[0, 1]
    record_property("rank correlation", f"{rank:.2f}")
    assert rank > 0.8


def test_a_search_finds_what_is_meant(client: openai.OpenAI) -> None:
    kept = [pair["sentences"] for pair in PAIRS if pair["score"] >= 4.5]
    asked, found = ([pair[side] for pair in kept] for side in (0, 1))
    answer = client.embeddings.create(model="minilm", input=[*asked, *found], encoding_format="float")
    vectors = np.array([item.embedding for item in answer.data])
    nearest = (vectors[: len(kept)] @ vectors[len(kept) :].T).argmax(1)
    assert nearest.tolist() == list(range(len(kept)))

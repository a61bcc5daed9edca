"""Preparation of embedding requests, and their errors."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from greenroom.engine.encoding.embedding_adapter import EmbeddingAdapter
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.tests.support.actors.actor_systems import chat
from greenroom.tests.support.engines.embedders import embedding_request, open_adapter_of
from greenroom.tests.support.models.tiny_encoders import TinyEncoder
from greenroom.tests.support.models.tiny_sentence_files import write_pooling, write_prompts
from greenroom.tests.support.texts.random_texts import random_texts

SEARCH = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"


def texts_of(adapter: EmbeddingAdapter, *texts: str, **asked: Any) -> list[str]:
    """Return texts as the model reads them."""
    rows = adapter.prepare_input(embedding_request(texts, **asked)).rows
    return [adapter._rows._tokenizer.decode(row.tokens.tolist()) for row in rows]


def refusal(adapter: EmbeddingAdapter, *texts: Any, **asked: Any) -> Problem:
    """Return the error of a request."""
    with pytest.raises(ProblemError) as refused:
        adapter.prepare_input(embedding_request(texts, **asked))
    assert refused.value.problem.status == 400
    return refused.value.problem


@pytest.fixture
def bert(tiny_encoder: TinyEncoder) -> EmbeddingAdapter:
    return open_adapter_of(tiny_encoder("bert"))


@pytest.fixture
def qwen(tiny_encoder: TinyEncoder) -> EmbeddingAdapter:
    return open_adapter_of(tiny_encoder("qwen3"))


def test_a_text_begins_with_the_models_own_prompt(qwen: EmbeddingAdapter) -> None:
    end = "<|endoftext|>"
    assert texts_of(qwen, "hello", input_type="query") == [f"{SEARCH}hello{end}"]
    assert texts_of(qwen, "hello", input_type="search_query") == [f"{SEARCH}hello{end}"]
    assert texts_of(qwen, "hello", input_type="passage") == [f"hello{end}"]
    assert texts_of(qwen, "hello") == [f"hello{end}"]


def test_an_instruction_takes_the_place_of_the_models_task(
    qwen: EmbeddingAdapter, tiny_encoder: TinyEncoder
) -> None:
    told = {"instruction": "Find code", "input_type": "query"}
    assert texts_of(qwen, "hello", **told) == ["Instruct: Find code\nQuery:hello<|endoftext|>"]
    gemma = open_adapter_of(tiny_encoder("gemma3_text"))
    expected = "<|im_start|>task: Find code | query: hello<|im_end|>"
    assert texts_of(gemma, "hello", instruction="Find code") == [expected]


def test_an_instruction_is_no_documents(qwen: EmbeddingAdapter) -> None:
    problem = refusal(qwen, "hello", instruction="Find code", input_type="passage")
    assert (problem.status, problem.param) == (400, "instruction")
    assert refusal(qwen, "hello", instruction="Find code", input_type="poem").param == "input_type"


def test_a_model_that_is_told_nothing_refuses_instructions(bert: EmbeddingAdapter) -> None:
    assert refusal(bert, "hello", instruction="Find code").param == "instruction"
    problem = refusal(bert, "hello", input_type="poem")
    assert problem.param == "input_type"
    assert "query, document" in problem.detail
    assert texts_of(bert, "hello", input_type="query") == texts_of(bert, "hello")


def test_the_default_prompt_is_for_texts_of_which_nothing_is_told(
    tiny_encoder: TinyEncoder, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(tiny_encoder("qwen3"), tmp_path / "model"))
    write_prompts(folder, {"query": "Q: ", "text": "T: "}, default="text")
    adapter = open_adapter_of(folder)
    assert texts_of(adapter, "hello") == ["T: hello<|endoftext|>"]
    assert adapter.prepare_input(embedding_request([(50, 51)])).rows[0].tokens.tolist() == [50, 51]


@pytest.mark.parametrize(
    ("name", "query"),
    [
        ("multilingual-e5-small", "query: "),
        ("nomic-embed-text-v1.5", "search_query: "),
        ("Qwen3-Embedding-0.6B-4bit-DWQ", SEARCH),
    ],
)
def test_models_known_by_name_have_the_prompts_of_their_cards(
    tiny_encoder: TinyEncoder, tmp_path: Path, name: str, query: str
) -> None:
    folder = Path(shutil.copytree(tiny_encoder("qwen3"), tmp_path / name))
    write_prompts(folder, {})
    assert texts_of(open_adapter_of(folder), "hello", input_type="query") == [f"{query}hello<|endoftext|>"]


def test_pooling_leaves_prompts_out_where_the_files_say_so(tiny_encoder: TinyEncoder, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_encoder("bert"), tmp_path / "model"))
    write_prompts(folder, {"query": "the value of self "})
    write_pooling(folder, 64, "mean", include_prompt=False)
    [row] = open_adapter_of(folder).prepare_input(embedding_request(["hello"], input_type="query")).rows
    before = (
        open_adapter_of(tiny_encoder("bert")).prepare_input(embedding_request(["the value of self"])).rows
    )
    assert row.instructed == len(before[0].tokens) - 1


def test_a_text_that_is_too_long_is_refused_or_cut(bert: EmbeddingAdapter) -> None:
    long = "hello class value " * 100
    problem = refusal(bert, "short", long)
    assert (problem.code, problem.param) == ("context_length_exceeded", "input[1]")
    assert "128" in problem.detail
    assert "502" in problem.detail
    [row] = bert.prepare_input(embedding_request([long], truncate=True)).rows
    assert len(row.tokens) == 128
    assert row.tokens[-1] == 3
    huge = "hello class value " * 200_000
    assert "3600000 characters" in refusal(bert, huge).detail
    [cut] = bert.prepare_input(embedding_request([huge], truncate=True)).rows
    assert cut.tokens.tolist() == row.tokens.tolist()


@pytest.mark.parametrize("endless", [" ", "a", "\u0301", "\U0001f98a"])
def test_a_text_without_end_is_not_tokenized_to_its_end(bert: EmbeddingAdapter, endless: str) -> None:
    assert refusal(bert, endless * 5_000_000).code == "context_length_exceeded"
    [row] = bert.prepare_input(embedding_request([endless * 5_000_000], truncate=True)).rows
    assert 2 <= len(row.tokens) <= 128


def test_tokens_are_taken_as_they_are(bert: EmbeddingAdapter) -> None:
    [row] = bert.prepare_input(embedding_request([(2, 300, 3)])).rows
    assert row.tokens.tolist() == [2, 300, 3]
    assert refusal(bert, (2, 624)).param == "input[1]"
    assert refusal(bert, (2, 3), (2, -1)).param == "input[1][1]"
    assert refusal(bert, (2, 2**70)).param == "input[1]"
    assert refusal(bert, ()).param == "input"
    assert refusal(bert, (50,) * 129).code == "context_length_exceeded"
    [cut] = bert.prepare_input(embedding_request([tuple(range(200))], truncate=True)).rows
    assert cut.tokens.tolist() == list(range(128))


def test_tokens_take_no_instruction(qwen: EmbeddingAdapter) -> None:
    assert refusal(qwen, (50,), input_type="query").param == "input_type"
    assert refusal(qwen, (50,), instruction="Find code").param == "instruction"


@pytest.mark.parametrize("dimensions", [0, -1, 65, 10**30])
def test_dimensions_must_be_within_the_models(bert: EmbeddingAdapter, dimensions: int) -> None:
    problem = refusal(bert, "hello", dimensions=dimensions)
    assert problem.param == "dimensions"
    assert "1 to 64" in problem.detail


def test_a_chat_is_refused_by_name_of_the_kind(bert: EmbeddingAdapter) -> None:
    with pytest.raises(ProblemError, match="a model for embeddings; it does not take a conversation"):
        bert.prepare_input(chat("bert"))
    with pytest.raises(ProblemError, match="nothing to embed"):
        bert.prepare_input(embedding_request([]))


def test_many_texts_are_tokenized_as_each_alone(bert: EmbeddingAdapter) -> None:
    texts = random_texts(300)
    together = bert.prepare_input(embedding_request(texts)).rows
    alone = [bert.prepare_input(embedding_request([text])).rows[0] for text in texts]
    assert [row.tokens.tolist() for row in together] == [row.tokens.tolist() for row in alone]

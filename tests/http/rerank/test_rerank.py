"""`/v1/rerank`, `/v2/rerank` and `/v1/score` over a real socket, with a real rerank model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.servers.http_servers import Served, connected, fetch, serving

DOCUMENTS = ["the man walks", "a long story about the weather and the garden", "", "no"]
RERANK: dict[str, Any] = {"model": "bert-rerank", "query": "who walks", "documents": DOCUMENTS}
SCORE: dict[str, Any] = {"model": "bert-rerank", "text_1": "who walks", "text_2": DOCUMENTS}
PATHS = ("/v1/rerank", "/v2/rerank", "/rerank")


@pytest.fixture
def settings(tiny_encoder: Callable[..., Path], tiny_model: Callable[..., Path]) -> Settings:
    models = (tiny_encoder("bert-rerank"), tiny_encoder("qwen3-rerank"), tiny_model("qwen3"))
    return Settings(models=tuple(map(str, models)), shutdown_timeout=60.0)


async def post(served: Served, path: str, body: Any, status: int = 200) -> Any:
    answer = await fetch(served.server, "POST", path, body)
    assert answer.status == status, answer.body
    return answer.json()


async def test_documents_are_ranked_in_the_words_of_every_client(settings: Settings) -> None:
    async with serving(settings) as served:
        answers = [await post(served, path, RERANK) for path in PATHS]
        first = answers[0]
        assert first["id"].startswith("rerank-")
        assert (first["object"], first["model"]) == ("list", "bert-rerank")
        assert [answer["meta"]["api_version"]["version"] for answer in answers] == ["1", "2", "1"]
        assert all(answer["results"] == first["results"] for answer in answers)
        assert sorted(result["index"] for result in first["results"]) == [0, 1, 2, 3]
        scores = [result["relevance_score"] for result in first["results"]]
        assert scores == sorted(scores, reverse=True)
        assert all(0 < score < 1 for score in scores)
        assert set(first["results"][0]) == {"index", "relevance_score"}
        tokens = first["usage"]["prompt_tokens"]
        assert first["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens, "completion_tokens": 0}
        assert first["meta"]["tokens"] == {"input_tokens": tokens, "output_tokens": 0}
        scored = await post(served, "/v1/score", SCORE)
        by_index = {result["index"]: result["relevance_score"] for result in first["results"]}
        assert [entry["index"] for entry in scored["data"]] == [0, 1, 2, 3]
        assert {entry["index"]: entry["score"] for entry in scored["data"]} == by_index
        assert {entry["object"] for entry in scored["data"]} == {"score"}
        assert scored["id"].startswith("score-")
        assert scored["usage"]["prompt_tokens"] == tokens
        assert (await post(served, "/score", SCORE))["data"] == scored["data"]


async def test_clients_of_text_embeddings_inference_name_no_model_and_get_a_list(settings: Settings) -> None:
    async with serving(settings) as served:
        ranked = (await post(served, "/rerank", RERANK))["results"]
        asked = {"query": RERANK["query"], "texts": DOCUMENTS, "raw_scores": False}
        plain = await post(served, "/rerank", asked)
        assert plain == [{"index": entry["index"], "score": entry["relevance_score"]} for entry in ranked]
        with_text = await post(served, "/rerank", {**asked, "return_text": True})
        assert [entry["text"] for entry in with_text] == [DOCUMENTS[entry["index"]] for entry in plain]
        both = await post(served, "/rerank", {**asked, "documents": DOCUMENTS}, 400)
        assert both["error"]["param"] == "texts"


async def test_what_is_returned_of_the_documents_is_the_clients_choice(settings: Settings) -> None:
    async with serving(settings) as served:
        everything = (await post(served, "/v1/rerank", RERANK))["results"]
        few = (await post(served, "/v1/rerank", RERANK | {"top_n": 2, "return_documents": True}))["results"]
        assert [result["index"] for result in few] == [result["index"] for result in everything[:2]]
        assert [result["document"] for result in few] == [{"text": DOCUMENTS[each["index"]]} for each in few]
        many = await post(served, "/v1/rerank", RERANK | {"top_n": 99})
        assert len(many["results"]) == 4


async def test_documents_may_be_objects_of_whose_fields_some_are_read(settings: Settings) -> None:
    objects = [{"text": text, "title": "garden", "id": at} for at, text in enumerate(DOCUMENTS)]
    async with serving(settings) as served:
        plain = (await post(served, "/v1/rerank", RERANK))["results"]
        body = RERANK | {"documents": objects, "query": {"text": "who walks"}}
        assert (await post(served, "/v1/rerank", body))["results"] == plain
        fields = body | {"rank_fields": ["title", "text"], "return_documents": True}
        by_fields = (await post(served, "/v1/rerank", fields))["results"]
        written = [f"title: garden\ntext: {text}" for text in DOCUMENTS]
        expected = (await post(served, "/v1/rerank", RERANK | {"documents": written}))["results"]
        assert [(each["index"], each["relevance_score"]) for each in by_fields] == [
            (each["index"], each["relevance_score"]) for each in expected
        ]
        assert by_fields[0]["document"] == objects[by_fields[0]["index"]]


async def test_pairs_are_scored_one_by_one_or_each_against_the_first(settings: Settings) -> None:
    async with serving(settings) as served:
        one = await post(served, "/v1/score", SCORE | {"text_1": ["who walks"]})
        each = await post(served, "/v1/score", SCORE | {"text_1": ["who walks"] * 4})
        single = await post(served, "/v1/score", SCORE | {"text_2": DOCUMENTS[1]})
        assert one["data"] == each["data"]
        assert [entry["score"] for entry in single["data"]] == pytest.approx(
            [one["data"][1]["score"]], abs=1e-6
        )


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("/v1/rerank", {"query": None}, "query"),
    ("/v1/rerank", {"query": ""}, "query"),
    ("/v1/rerank", {"query": {"image": "x"}}, "query"),
    ("/v1/rerank", {"query": ["a"]}, "query"),
    ("/v1/rerank", {"documents": []}, "documents"),
    ("/v1/rerank", {"documents": "a"}, "documents"),
    ("/v1/rerank", {"documents": None}, "documents"),
    ("/v1/rerank", {"model": None}, "model"),
    ("/v1/rerank", {"documents": None, "texts": []}, "texts"),
    ("/v1/rerank", {"documents": ["a", 7]}, "documents[1]"),
    ("/v1/rerank", {"documents": ["a", None]}, "documents[1]"),
    ("/v1/rerank", {"documents": ["a", {"text": 7}]}, "documents[1]"),
    ("/v1/rerank", {"documents": ["a", {"image": "data:"}]}, "documents[1]"),
    ("/v1/rerank", {"documents": ["a"] * 10_001}, "documents"),
    ("/v1/rerank", {"rank_fields": ["title"]}, "documents[0]"),
    ("/v1/rerank", {"rank_fields": ["text"] * 17}, "rank_fields"),
    ("/v1/rerank", {"rank_fields": ["text", ""]}, "rank_fields"),
    ("/v1/rerank", {"top_n": 0}, "top_n"),
    ("/v1/rerank", {"top_n": True}, "top_n"),
    ("/v1/rerank", {"top_n": 1.5}, "top_n"),
    ("/v2/rerank", {"max_tokens_per_doc": -1}, "max_tokens_per_doc"),
    ("/v1/rerank", {"max_chunks_per_doc": 10}, "max_chunks_per_doc"),
    ("/v2/rerank", {"priority": -1}, "priority"),
    ("/v2/rerank", {"relevant_spans": {"mode": "enabled"}}, "relevant_spans"),
    ("/v1/rerank", {"return_documents": "yes"}, "return_documents"),
    ("/v1/rerank", {"instruction": "Find men."}, "instruction"),
    ("/v1/rerank", {"instruction": " ", "model": "qwen3-rerank"}, "instruction"),
    ("/v1/rerank", {"query": "walk " * 400}, "query"),
    ("/v1/rerank", {"documents": ["walk " * 400], "truncation": False}, "documents"),
    ("/v1/rerank", {"model": ""}, "model"),
    ("/v1/rerank", {"model": "qwen3"}, "model"),
    ("/v1/score", {"text_1": []}, "text_1"),
    ("/v1/score", {"text_1": ["a", "b"]}, "text_1"),
    ("/v1/score", {"text_1": {"text": "a"}}, "text_1"),
    ("/v1/score", {"text_2": [["a"]]}, "text_2"),
    ("/v1/score", {"text_2": ["a"] * 10_001}, "text_2"),
    ("/v1/score", {"text_1": "walk " * 400}, "text_1"),
    ("/v1/score", {"truncate_prompt_tokens": 5}, "truncate_prompt_tokens"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}, "model"),
]


async def test_whatever_is_wrong_is_a_400_that_names_the_field(settings: Settings) -> None:
    async with serving(settings) as served:
        for path, changes, param in BAD:
            body = (SCORE if "score" in path else RERANK) | changes
            answer = await fetch(served.server, "POST", path, body)
            assert answer.status == 400, (path, changes, answer.body)
            error = answer.json()
            assert error["error"]["param"] == param, (path, changes, error)
            if "rank" in path or "score" in path:
                assert error["message"] == error["error"]["message"], "where Cohere's clients look"
        assert len((await post(served, "/v1/rerank", RERANK))["results"]) == 4


async def test_a_client_that_leaves_ends_its_request_and_others_go_on(settings: Settings) -> None:
    many = RERANK | {"documents": [f"{'the garden ' * 30}{at}" for at in range(1_500)]}
    async with serving(settings) as served:
        await post(served, "/v1/rerank", RERANK)
        async with connected(served.server) as client:
            await client.request("POST", "/v1/rerank", json.dumps(many).encode())
            small = await post(served, "/v1/rerank", RERANK)
            assert len(small["results"]) == 4, "answered beside the big one"
        with trio.fail_after(300):
            assert len((await post(served, "/v1/rerank", RERANK))["results"]) == 4

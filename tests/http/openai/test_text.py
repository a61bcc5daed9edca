"""Seeds, choices, penalties, biases and log-probabilities over a socket, requested by OpenAI's client."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.clients.openai_clients import ask, streamed_text
from greenroom.tests.support.servers.http_servers import Served, fetch, serving
from greenroom.tests.support.servers.shared_servers import Shared

TinyModel = Callable[..., Path]
USER = {"role": "user", "content": "Tell me about the sea"}


@pytest.fixture
def settings(tiny_model: TinyModel) -> Settings:
    return Settings(models=(str(tiny_model("qwen3")),), shutdown_timeout=60.0)


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "qwen3", "messages": [USER], "max_tokens": 12, "reasoning_effort": "none", **fields}


async def chat(served: Served, **fields: Any) -> Any:
    return await ask(served, lambda client: client.chat.completions.create(**body(**fields)))


async def streamed(served: Served, **fields: Any) -> list[Any]:
    fields = body(stream=True, stream_options={"include_usage": True}, **fields)
    return await ask(served, lambda client: list(client.chat.completions.create(**fields)))


async def test_a_seed_repeats_an_answer_and_another_does_not(settings: Settings, shared: Shared) -> None:
    served = shared(settings)
    first = await chat(served, seed=7)
    again = await chat(served, seed=7)
    other = await chat(served, seed=8)
    contents = [answer.choices[0].message.content for answer in (first, again, other)]
    assert contents[0] == contents[1] != contents[2]
    assert streamed_text(await streamed(served, seed=7)) == contents[0]


async def test_choices_differ_and_their_prompt_is_counted_once(settings: Settings, shared: Shared) -> None:
    served = shared(settings)
    whole = await chat(served, n=3, seed=1, logprobs=True)
    assert [choice.index for choice in whole.choices] == [0, 1, 2]
    assert len({choice.message.content for choice in whole.choices}) == 3
    alone = await chat(served, seed=1)
    assert alone.choices[0].message.content == whole.choices[0].message.content
    assert whole.usage.prompt_tokens == alone.usage.prompt_tokens
    assert whole.usage.completion_tokens == 36
    chunks = await streamed(served, n=3, seed=1)
    for choice in whole.choices:
        assert streamed_text(chunks, choice.index) == choice.message.content
    assert chunks[-1].usage.prompt_tokens == whole.usage.prompt_tokens
    assert chunks[-1].usage.completion_tokens == 36
    ends = [c.index for chunk in chunks for c in chunk.choices if c.finish_reason == "length"]
    assert sorted(ends) == [0, 1, 2]
    roles = [c.index for chunk in chunks for c in chunk.choices if c.delta.role]
    assert roles == [0, 1, 2]


async def test_log_probabilities_of_a_chat(settings: Settings, shared: Shared) -> None:
    served = shared(settings)
    whole = await chat(served, temperature=0, logprobs=True, top_logprobs=4)
    scores = whole.choices[0].logprobs.content
    assert len(scores) == 12
    for score in scores:
        assert len(score.top_logprobs) == 4
        best = score.top_logprobs[0]
        assert (best.token, best.bytes, best.logprob) == (score.token, score.bytes, score.logprob)
        assert sum(math.exp(other.logprob) for other in score.top_logprobs) <= 1.0001
    spelled = bytes(byte for score in scores for byte in score.bytes).decode("utf-8", "replace")
    assert spelled.strip() == whole.choices[0].message.content.strip()
    chunks = await streamed(served, temperature=0, logprobs=True, top_logprobs=4)
    parts = [
        score
        for chunk in chunks
        for choice in chunk.choices
        for score in (choice.logprobs.content if choice.logprobs else ())
    ]
    assert [(s.token, s.top_logprobs) for s in parts] == [(s.token, s.top_logprobs) for s in scores]
    assert (await chat(served)).choices[0].logprobs is None
    first = whole.choices[0].message.content[:2]
    stopped = await chat(served, temperature=0, logprobs=True, stop=[first])
    assert (stopped.choices[0].message.content, stopped.choices[0].logprobs.content) == ("", [])


async def test_log_probabilities_of_raw_completions(settings: Settings, shared: Shared) -> None:
    fields: Any = {
        "model": "qwen3",
        "prompt": ["import os", "def main"],
        "max_tokens": 8,
        "n": 2,
        "logprobs": 2,
    }
    served = shared(settings)
    whole = await ask(served, lambda client: client.completions.create(**fields, seed=3))
    assert [choice.index for choice in whole.choices] == [0, 1, 2, 3]
    assert len({choice.text for choice in whole.choices}) == 4
    assert whole.usage.completion_tokens == 32
    single = await ask(
        served, lambda client: client.completions.create(**{**fields, "n": 1}, seed=3, stream=False)
    )
    assert single.usage.prompt_tokens == whole.usage.prompt_tokens
    assert [choice.text for choice in single.choices] == [whole.choices[0].text, whole.choices[2].text]
    for choice in whole.choices:
        entries = choice.logprobs
        assert len(entries.tokens) == len(entries.token_logprobs) == len(entries.text_offset) == 8
        for token, logprob, top in zip(
            entries.tokens, entries.token_logprobs, entries.top_logprobs, strict=True
        ):
            assert 2 <= len(top) <= 3
            assert top[token] == logprob
        assert entries.text_offset == sorted(entries.text_offset)
        for token, start, end in zip(
            entries.tokens, entries.text_offset, entries.text_offset[1:], strict=False
        ):
            if "\N{REPLACEMENT CHARACTER}" not in choice.text[: end + 1]:
                assert choice.text[start:end] == token
    chunks = await ask(served, lambda client: list(client.completions.create(**fields, seed=3, stream=True)))
    for choice in whole.choices:
        mine = [c for chunk in chunks for c in chunk.choices if c.index == choice.index]
        assert "".join(c.text for c in mine) == choice.text
        offsets = [offset for c in mine if c.logprobs for offset in c.logprobs.text_offset]
        assert offsets == choice.logprobs.text_offset


async def test_penalties_biases_and_what_others_added_are_honoured(
    settings: Settings, shared: Shared
) -> None:
    served = shared(settings)
    plain = (await chat(served, temperature=0, logprobs=True)).choices[0]
    biased = await chat(served, temperature=0, logit_bias={"600": 100}, logprobs=True)
    assert len({score.token for score in biased.choices[0].logprobs.content}) == 1
    spread = await chat(
        served, temperature=0, logit_bias={"600": 100}, frequency_penalty=2, presence_penalty=2
    )
    assert spread.choices[0].message.content == biased.choices[0].message.content
    for fields in (
        {"extra_body": {"repetition_penalty": 3.0}},
        {"extra_body": {"xtc_probability": 1.0, "xtc_threshold": 0.0001}, "seed": 1, "temperature": 0.05},
    ):
        answer = await chat(served, **{"temperature": 0, **fields})
        assert answer.choices[0].message.content != plain.message.content
    ended = await chat(served, temperature=0, logit_bias={"2": 100})
    assert (ended.choices[0].finish_reason, ended.usage.completion_tokens) == ("stop", 1)
    for extra, tokens in (({"min_tokens": 5}, 6), ({"ignore_eos": True}, 12)):
        kept = await chat(served, temperature=0, logit_bias={"2": 100}, extra_body=extra)
        assert kept.usage.completion_tokens == tokens


@pytest.mark.deep
async def test_a_stream_reports_how_much_of_its_prompt_is_computed(tiny_model: TinyModel) -> None:
    words = [f"word{number} " for number in range(300)]
    options = {"extra_body": {"return_progress": True}, "max_tokens": 1}
    async with serving(Settings(models=(str(tiny_model("qwen3")),))) as served:
        cold, known = [
            await streamed(served, messages=[{"role": "user", "content": "".join(words) + end}], **options)
            for end in ("one", "two")
        ]
        silent = await streamed(served, max_tokens=1)
    first, *_, last = reports = [chunk.prompt_progress for chunk in cold if hasattr(chunk, "prompt_progress")]
    assert first["processed"] == first["cache"] < last["processed"] == last["total"]
    assert first["cache"] == last["cache"] < 10
    assert all(0 <= one["time_ms"] <= other["time_ms"] for one, other in pairwise(reports))
    again = [chunk.prompt_progress for chunk in known if hasattr(chunk, "prompt_progress")]
    assert again[0]["processed"] == again[0]["cache"] > last["total"] // 2
    assert not any(hasattr(chunk, "prompt_progress") for chunk in silent)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"return_progress": "yes"}, "return_progress"),
        ({"n": 0}, "n"),
        ({"n": 17}, "n"),
        ({"seed": 1.5}, "seed"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logprobs": 3}, "logprobs"),
        ({"logit_bias": {"the": 1}}, "logit_bias"),
        ({"logit_bias": {"99999": 1}}, "logit_bias.99999"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"min_tokens": -1}, "min_tokens"),
        ({"ignore_eos": "yes"}, "ignore_eos"),
    ],
    ids=str,
)
async def test_what_cannot_be_honoured_is_refused(
    settings: Settings, shared: Shared, fields: dict[str, Any], param: str
) -> None:
    served = shared(settings)
    answer = await fetch(served.server, "POST", "/v1/chat/completions", body(**fields))
    assert (answer.status, answer.json()["error"]["param"]) == (400, param)


@pytest.mark.parametrize("fields", [{"logprobs": 21}, {"logprobs": True}], ids=str)
async def test_legacy_log_probabilities_have_their_own_range(
    settings: Settings, shared: Shared, fields: dict[str, Any]
) -> None:
    served = shared(settings)
    sent = {"model": "qwen3", "prompt": "import os", **fields}
    answer = await fetch(served.server, "POST", "/v1/completions", sent)
    assert (answer.status, answer.json()["error"]["param"]) == (400, "logprobs")

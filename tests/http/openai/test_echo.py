"""Echoed prompts with their log-probabilities, and `best_of` several answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import openai
import pytest

from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.clients.openai_clients import ask
from greenroom.tests.support.servers.http_servers import Served, fetch, serving
from greenroom.tests.support.servers.shared_servers import Shared

SCORES: dict[str, Any] = {"echo": True, "logprobs": 0, "max_tokens": 0}
TEXT = "The sea \u6d77 \U0001f30a is wide"


@pytest.fixture
def settings(tiny_model: Callable[..., Path]) -> Settings:
    return Settings(models=(str(tiny_model("qwen3")),), shutdown_timeout=10.0)


async def complete(served: Served, prompt: Any, **fields: Any) -> Any:
    fields = {"model": "qwen3", "temperature": 0, "max_tokens": 5, **fields}
    return await ask(served, lambda client: client.completions.create(prompt=prompt, **fields))


async def streamed(served: Served, prompt: Any, **fields: Any) -> list[dict[str, Any]]:
    """Return the choices of a stream, joined from its chunks."""
    fields = {"model": "qwen3", "temperature": 0, "max_tokens": 5, "stream": True, **fields}
    chunks = await ask(served, lambda client: list(client.completions.create(prompt=prompt, **fields)))
    choices: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        for choice in chunk.choices:
            whole = choices.setdefault(
                choice.index, {"text": "", "tokens": [], "values": [], "offsets": [], "tops": []}
            )
            whole["text"] += choice.text
            if choice.logprobs is not None:
                whole["tokens"] += choice.logprobs.tokens
                whole["values"] += choice.logprobs.token_logprobs
                whole["offsets"] += choice.logprobs.text_offset
                whole["tops"] += choice.logprobs.top_logprobs or []
    return [choices[index] for index in sorted(choices)]


async def ids_of(served: Served, text: str) -> list[int]:
    answer = await fetch(served.server, "POST", "/tokenize", {"model": "qwen3", "prompt": text})
    return list(answer.json()["tokens"])


async def test_an_echoed_prompt_has_the_log_probabilities_of_its_tokens(
    settings: Settings, shared: Shared
) -> None:
    served = shared(settings)
    plain = (await complete(served, TEXT, logprobs=2)).choices[0]
    most = (await complete(served, TEXT, logprobs=20)).choices[0].logprobs
    assert len(most.top_logprobs[0]) > 5
    ids = await ids_of(served, TEXT)
    for prompt in (TEXT, ids):
        echoed = (await complete(served, prompt, logprobs=2, echo=True)).choices[0]
        assert echoed.text == TEXT + plain.text
        shown = echoed.logprobs
        assert shown.tokens[len(ids) :] == plain.logprobs.tokens
        assert shown.token_logprobs[0] is None
        assert shown.top_logprobs[0] is None
        assert shown.token_logprobs[len(ids) :] == pytest.approx(plain.logprobs.token_logprobs, abs=1e-3)
        assert all(value < 0 for value in shown.token_logprobs[1:])
        assert all(len(top) in (2, 3) for top in shown.top_logprobs[1:])
        assert len(shown.tokens) == len(shown.text_offset) == len(ids) + 5
        for token, at in zip(shown.tokens, shown.text_offset, strict=True):
            assert token.startswith("bytes:") or echoed.text[at:].startswith(token)
        whole = {
            "text": echoed.text,
            "tokens": shown.tokens,
            "values": shown.token_logprobs,
            "offsets": shown.text_offset,
            "tops": shown.top_logprobs,
        }
        assert await streamed(served, prompt, logprobs=2, echo=True) == [whole]
    # A prompt token's log-probability equals that of the same token as an answer.
    half = (await complete(served, ids[:4], logprobs=0, max_tokens=1)).choices[0].logprobs
    [again] = (await complete(served, [*ids[:4], *await ids_of(served, half.tokens[0])], **SCORES)).choices
    assert again.logprobs.token_logprobs[4] == pytest.approx(half.token_logprobs[0], abs=1e-3)
    # OpenAI's schema has a list here, not null.
    assert not any(again.logprobs.top_logprobs)


@pytest.mark.deep
async def test_only_the_prompt_may_be_wanted(settings: Settings) -> None:
    async with serving(settings) as served:
        ids = await ids_of(served, TEXT)
        for prompts in (TEXT, [TEXT], [ids, ids], ["A hill", TEXT]):
            whole = await complete(served, prompts, **SCORES)
            choices = await streamed(served, prompts, **SCORES)
            for choice, pieces in zip(whole.choices, choices, strict=True):
                assert choice.finish_reason == "length"
                assert choice.text == pieces["text"] in (TEXT, "A hill")
                assert choice.logprobs.token_logprobs == pieces["values"]
            assert whole.choices[-1].text == TEXT
            assert len(whole.choices[-1].logprobs.tokens) == len(ids)
            assert whole.usage.completion_tokens == 0
        alone = await complete(served, TEXT, echo=True, max_tokens=0)
        assert (alone.choices[0].text, alone.choices[0].logprobs) == (TEXT, None)
        # A prompt that fills the context leaves no space for an answer, but can be scored.
        async with serving(attrs.evolve(settings, max_context=64)) as short:
            filled = await complete(short, [300] * 64, **SCORES)
            assert len(filled.choices[0].logprobs.tokens) == 64
            with pytest.raises(openai.BadRequestError, match="maximum context length"):
                await complete(short, [300] * 65, **SCORES)
            with pytest.raises(openai.BadRequestError, match="maximum context length"):
                await complete(short, [300] * 64, echo=True, max_tokens=1)


@pytest.mark.deep
async def test_prompts_of_tokens_and_several_answers_are_echoed(settings: Settings, shared: Shared) -> None:
    served = shared(settings)
    ids = await ids_of(served, TEXT)
    fields = {"echo": True, "n": 2, "seed": 3, "temperature": 1.0, "logprobs": 1}
    whole = await complete(served, [ids, TEXT, "A hill"], **fields)
    assert [choice.index for choice in whole.choices] == list(range(6))
    assert [choice.text.startswith(TEXT) for choice in whole.choices] == [True] * 4 + [False] * 2
    assert len({choice.text for choice in whole.choices[:2]}) == 2
    for choice, pieces in zip(
        whole.choices, await streamed(served, [ids, TEXT, "A hill"], **fields), strict=True
    ):
        assert choice.text == pieces["text"]
        assert choice.logprobs.tokens == pieces["tokens"]
    unscored = await streamed(served, [ids, "A hill"], echo=True)
    assert [choice["text"] for choice in unscored] == [
        choice.text for choice in (await complete(served, [ids, "A hill"], echo=True)).choices
    ]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": False, "echo": True}, "max_tokens"),
        ({"logprobs": 21, "echo": True}, "logprobs"),
        ({"logprobs": 1, "echo": True, "suffix": "x"}, "logprobs"),
        ({"logprobs": 1, "echo": True, "prompt": [[5] * 1100] * 128}, "prompt"),
        ({"best_of": 17}, "best_of"),
        ({"best_of": 0}, "best_of"),
        ({"best_of": "2"}, "best_of"),
        ({"best_of": 2, "n": 3}, "best_of"),
        ({"best_of": 2, "stream": True}, "best_of"),
    ],
)
async def test_what_cannot_be_answered_is_refused_by_name(
    settings: Settings, shared: Shared, fields: dict[str, Any], param: str
) -> None:
    served = shared(settings)
    body = {"model": "qwen3", "prompt": "a", **fields}
    refused = await fetch(served.server, "POST", "/v1/completions", body)
    assert (refused.status, refused.json()["error"]["param"]) == (400, param)


async def test_the_best_of_several_are_the_likeliest(settings: Settings, shared: Shared) -> None:
    served = shared(settings)
    fields = {"seed": 7, "temperature": 1.0, "max_tokens": 6, "logprobs": 0}
    every = await complete(served, ["The sea", "A hill"], n=6, **fields)

    def mean(choice: Any) -> float:
        return float(sum(choice.logprobs.token_logprobs) / len(choice.logprobs.token_logprobs))

    for n in (1, 2):
        best = await complete(served, ["The sea", "A hill"], n=n, best_of=6, **fields)
        assert [choice.index for choice in best.choices] == list(range(2 * n))
        expected = [
            choice.text
            for first in (0, 6)
            for choice in sorted(every.choices[first : first + 6], key=mean, reverse=True)[:n]
        ]
        assert [choice.text for choice in best.choices] == expected
        assert best.usage == every.usage
    quiet = await complete(served, "The sea", best_of=6, **{**fields, "logprobs": None})
    assert quiet.choices[0].text == expected[0]
    assert quiet.choices[0].logprobs is None
    assert quiet.usage.completion_tokens == 36
    same = await complete(served, "The sea", best_of=1)
    assert same.choices[0].text == (await complete(served, "The sea")).choices[0].text
    assert await streamed(served, "The sea", best_of=1)

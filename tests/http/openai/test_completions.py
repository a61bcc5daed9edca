"""Raw completions over a real socket, requested by OpenAI's client."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import openai
import pytest

from greenroom.schemas.problems import ProblemError
from greenroom.schemas.settings.settings import Settings
from greenroom.schemas.wire.openai_chat import OPENAI, CompletionRequest
from greenroom.schemas.wire.wire import structure
from greenroom.tests.support.clients.openai_clients import ask
from greenroom.tests.support.servers.http_servers import serving
from greenroom.tests.support.servers.shared_servers import Shared


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("a", ("a",)),
        (["a", "b"], ("a", "b")),
        ([1, 2], ((1, 2),)),
        ([[1], [2, 3]], ((1,), (2, 3))),
    ],
)
def test_prompts_come_in_four_forms(prompt: Any, prompts: tuple[Any, ...]) -> None:
    assert structure({"model": "m", "prompt": prompt}, CompletionRequest, OPENAI).prompt.prompts == prompts


@pytest.mark.parametrize(
    "prompt", [None, 3, [], {}, [None], [1, "a"], [[1], "a", [None]], [True], [-1], ["a"] * 129]
)
def test_other_prompts_are_refused(prompt: Any) -> None:
    with pytest.raises(ProblemError) as refused:
        structure({"model": "m", "prompt": prompt}, CompletionRequest, OPENAI)
    assert (refused.value.problem.status, refused.value.problem.param) == (400, "prompt")


TinyModel = Callable[..., Path]


@pytest.fixture
def settings(tiny_model: TinyModel) -> Settings:
    return Settings(models=(str(tiny_model("qwen3")), str(tiny_model("llama"))), shutdown_timeout=10.0)


async def test_completions_continue_text_and_tokens(settings: Settings, shared: Shared) -> None:
    served = shared(settings)

    def complete(prompt: Any, **fields: Any) -> Any:
        fields = {"temperature": 0, **fields}
        return lambda client: client.completions.create(model="qwen3", prompt=prompt, **fields)

    one = await ask(served, complete("The sea"))
    assert one.object == "text_completion"
    assert one.usage.completion_tokens == 16
    several = await ask(served, complete(["The sea", "A hill"]))
    assert [choice.index for choice in several.choices] == [0, 1]
    assert several.choices[0].text == one.choices[0].text != several.choices[1].text
    assert several.usage.completion_tokens == 32
    echoed = await ask(served, complete("The sea", echo=True))
    assert echoed.choices[0].text == "The sea" + one.choices[0].text
    tokens = await ask(served, complete([[5, 6, 7], [5, 6, 7]], max_tokens=5))
    assert tokens.choices[0].text == tokens.choices[1].text
    texts = {0: "", 1: ""}
    for chunk in await ask(served, lambda client: list(complete(["The sea", "A hill"], stream=True)(client))):
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == {choice.index: choice.text for choice in several.choices}
    for top in (5, 6, 20):  # more than five, as vLLM gives them
        listed = (await ask(served, complete("The sea", logprobs=top))).choices[0].logprobs
        assert {len(each) for each in listed.top_logprobs} == {top}
        assert [max(each.values()) for each in listed.top_logprobs] == listed.token_logprobs
        stream = complete("The sea", stream=True, logprobs=top)
        streamed = await ask(served, lambda client, ask=stream: list(ask(client)))  # type: ignore[misc]
        pieces = [choice.logprobs for chunk in streamed for choice in chunk.choices if choice.logprobs]
        assert [token for piece in pieces for token in piece.tokens] == listed.tokens
        assert [each for piece in pieces for each in piece.top_logprobs] == listed.top_logprobs
    with pytest.raises(openai.BadRequestError) as refused:
        await ask(served, complete([[5], [10**9]]))
    assert (refused.value.param or "").startswith("prompt")


async def test_several_prompts_with_more_choices_each_than_the_model_has_slots(settings: Settings) -> None:
    async with serving(attrs.evolve(settings, max_batch=2)) as served:

        def complete(**fields: Any) -> Any:
            fields = {"model": "qwen3", "prompt": ["The sea", "A hill"], "max_tokens": 4, "seed": 3, **fields}
            return lambda client: client.completions.create(**fields)

        whole = await ask(served, complete(n=3))
        assert [choice.index for choice in whole.choices] == list(range(6))
        assert whole.usage.completion_tokens == 24
        alone = await ask(served, complete(prompt="A hill", n=2))
        assert [choice.text for choice in alone.choices] == [choice.text for choice in whole.choices[3:5]]
        options = {"stream": True, "stream_options": {"include_usage": True}}
        chunks = await ask(served, lambda client: list(complete(n=3, **options)(client)))
        texts = [""] * 6
        for chunk in chunks:
            for choice in chunk.choices:
                texts[choice.index] += choice.text
        assert texts == [choice.text for choice in whole.choices]
        assert chunks[-1].usage == whole.usage

"""Echoed raw prompts, without the tokens that the server added."""

from __future__ import annotations

import attrs
import pytest

from greenroom.schemas.messages.prepared_input import EchoedPrompt
from greenroom.schemas.messages.requests import InferenceRequest, RawInput
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.problems import ProblemError
from greenroom.tests.support.templates.chat_adapters import MakeAdapter


def echoed(
    adapter: MakeAdapter, name: str, prompt: str | tuple[int, ...], *, begins: bool = True
) -> EchoedPrompt:
    raw = RawInput(prompt, begins=begins, echo=True, scored=100)
    echo = adapter(name).prepare_input(InferenceRequest("r", ModelKey("m"), raw)).echo
    assert echo is not None
    return echo


@pytest.mark.parametrize(("name", "added"), [("llama", 1), ("mistral", 1), ("qwen", 0)])
def test_what_the_model_wants_before_a_text_is_hidden(adapter: MakeAdapter, name: str, added: int) -> None:
    model = adapter(name)
    text = echoed(adapter, name, "Hello the world")
    assert (text.text, text.hidden, text.scored) == ("Hello the world", added, True)
    assert text.vocabulary == model.tokenizer.vocab_size
    assert echoed(adapter, name, "Hello", begins=False).hidden == 0
    if bos := model.tokenizer.bos_token:
        assert echoed(adapter, name, f"{bos}Hello").hidden == 0
    ids = tuple(ident for piece in model.tokenizer.encode_prompt("Hello") for ident in piece)
    tokens = echoed(adapter, name, ids)
    assert (tokens.text.endswith("Hello"), tokens.hidden) == (True, 0)


def test_a_prompt_that_is_too_long_to_be_scored_is_refused(adapter: MakeAdapter) -> None:
    raw = RawInput((5,) * 11, echo=True, scored=10)
    request = InferenceRequest("r", ModelKey("m"), raw)
    with pytest.raises(ProblemError, match=r"11 tokens.*at most 10") as refused:
        adapter("qwen").prepare_input(request)
    assert (refused.value.problem.status, refused.value.problem.param) == (400, "prompt")
    unscored = attrs.evolve(request, input=attrs.evolve(raw, scored=None))
    assert adapter("qwen").prepare_input(unscored).echo is not None

"""Gemma 3 270M over HTTP: a large SentencePiece vocabulary, a window of 512 tokens (`make real ALL=1`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import openai
import pytest
from tokenizers import Tokenizer

from greenroom.tests.real.conftest import HOME

NEEDS = ("gemma3",)
RECORDED = json.loads(Path(__file__).with_name("gemma3.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("recorded", RECORDED["texts"], ids=lambda recorded: recorded["text"][:16])
def test_the_echo_of_a_prompt_and_its_log_probabilities(
    recorded: dict[str, Any], client: openai.OpenAI
) -> None:
    answer = client.completions.create(
        model="gemma3", prompt=recorded["text"], echo=True, logprobs=1, temperature=0, max_tokens=20
    )
    (choice,) = answer.choices
    count = len(recorded["prompt"])
    tokens = [*recorded["prompt"], *(token for token, _ in recorded["answer"])]
    tokenizer = Tokenizer.from_file(str(HOME / "gemma3" / "tokenizer.json"))
    assert choice.text == tokenizer.decode(tokens[1:])
    assert choice.logprobs is not None
    assert choice.logprobs.tokens is not None
    assert choice.logprobs.token_logprobs is not None
    assert "".join(choice.logprobs.tokens) == f"<bos>{choice.text}"
    expected = [*recorded["logprobs"], *(logprob for _, logprob in recorded["answer"])]
    assert len(choice.logprobs.tokens) == count + len(recorded["answer"])
    assert choice.logprobs.token_logprobs[1:] == pytest.approx(expected, abs=0.02)


def test_a_prompt_longer_than_the_window(client: openai.OpenAI) -> None:
    recorded = RECORDED["long"]
    assert len(recorded["prompt"]) > 600
    answer = client.completions.create(
        model="gemma3", prompt=recorded["text"], logprobs=1, temperature=0, max_tokens=20
    )
    (choice,) = answer.choices
    tokenizer = Tokenizer.from_file(str(HOME / "gemma3" / "tokenizer.json"))
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len(recorded["prompt"])
    assert choice.text == tokenizer.decode([token for token, _ in recorded["answer"]])
    assert choice.logprobs is not None
    assert choice.logprobs.token_logprobs == pytest.approx([p for _, p in recorded["answer"]], abs=0.02)


def test_a_model_without_a_chat_template_names_the_other_route(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="/v1/completions"):
        client.chat.completions.create(model="gemma3", messages=[{"role": "user", "content": "Hello"}])

"""Tests of prompt log-probabilities against a plain forward pass, for any way of prefill."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from greenroom.engine.resources.account import MemoryAccount
from greenroom.engine.text.prefix_cache.prefix_cache import PrefixCache
from greenroom.schemas.events.events import InferenceEvent, PromptText, Token, TokenLogprob
from greenroom.schemas.messages.generation import GenerationParameters
from greenroom.schemas.messages.prepared_input import EchoedPrompt
from greenroom.schemas.settings.setting_groups import MEGABYTE
from greenroom.tests.support.engines.logprobs import plain_logprobs
from greenroom.tests.support.engines.text_engines import GREEDY, Driver, finished, loaded, text_of
from greenroom.tests.support.models.tiny_kinds import VOCABULARY

TinyModel = Callable[..., Path]
PROMPT = tuple(range(100, 140))
LONG = tuple(300 + (7 * i) % 1500 for i in range(300))
SCORED = GenerationParameters(temperature=0.0, logprobs=True, top_logprobs=3)


def chunks_of(tokens: int) -> EchoedPrompt:
    """Return an echo with which at most `tokens` tokens are scored together."""
    return EchoedPrompt(" ", 0, scored=True, vocabulary=64 * MEGABYTE // 4 // tokens)


ECHO = EchoedPrompt(" ", 0, scored=True, vocabulary=VOCABULARY)


def prompt_of(
    events: Sequence[InferenceEvent], index: int = 0
) -> tuple[str, list[Token | None], list[TokenLogprob]]:
    pieces = [event for event in events if isinstance(event, PromptText) and event.index == index]
    scores = [score for piece in pieces for score in piece.logprobs]
    return "".join(piece.text for piece in pieces), [piece.first for piece in pieces], scores


def check(folder: Path, prompt: Sequence[int], events: Sequence[InferenceEvent], index: int = 0) -> None:
    name = loaded(folder)[1].token
    text, firsts, scores = prompt_of(events, index)
    assert firsts == [name(prompt[0]), *[None] * (len(firsts) - 1)]
    assert [score.token for score in scores] == [name(token) for token in prompt[1:]]
    assert text == b"".join(name(token).bytes for token in prompt).decode("utf-8", "replace")
    expected = plain_logprobs(folder, prompt[:1], prompt[1:])
    for row, token, score in zip(expected, prompt[1:], scores, strict=True):
        assert abs(score.logprob - row[token]) < 1e-3
        best = np.argsort(-row)[:3]
        assert [value for _, value in score.top] == pytest.approx(row[best].tolist(), abs=1e-3)


@pytest.mark.parametrize("kind", ["qwen3", "lfm2"])
def test_a_prompt_is_scored_as_in_one_pass_beside_others(tiny_model: TinyModel, kind: str) -> None:
    folder = tiny_model(kind)
    driver = Driver(folder)
    alone = Driver(folder)
    for prompt in (PROMPT, LONG):
        alone.submit(prompt, 8)
    alone.run()
    driver.submit(LONG, 8, SCORED, echo=ECHO)
    driver.submit(PROMPT, 8, GREEDY)
    for _ in range(3):
        driver.step()
    driver.submit(PROMPT, 8, SCORED, echo=ECHO)
    driver.submit(LONG, 8, SCORED, echo=chunks_of(20))
    driver.run()
    for request, prompt in enumerate([LONG, PROMPT, PROMPT, LONG]):
        if request != 1:
            check(folder, prompt, driver.events[str(request)])
        # The answer is what it is without the echo.
        assert driver.tokens[request] == alone.tokens[prompt is LONG]
    assert not any(isinstance(event, PromptText) for event in driver.events["1"])


def test_all_of_a_prompt_comes_before_its_answer(tiny_model: TinyModel) -> None:
    driver = Driver(tiny_model("qwen3"), max_rows=2)
    driver.submit(LONG, 5, GenerationParameters(n=3, seed=1, logprobs=True), echo=chunks_of(50))
    driver.run()
    events = [event for event in driver.events["0"] if hasattr(event, "index")]
    for index in range(3):
        kinds = [isinstance(event, PromptText) for event in events if event.index == index]
        assert kinds == sorted(kinds, reverse=True)
        assert kinds.count(True) >= len(LONG) // 50
        assert len(prompt_of(driver.events["0"], index)[2]) == len(LONG) - 1


def test_what_is_cached_of_a_prompt_is_scored_too_and_costs_no_one_else_anything(
    tiny_model: TinyModel,
) -> None:
    folder = tiny_model("qwen3")
    driver = Driver(folder, prefix_cache=PrefixCache(64 * MEGABYTE))
    for echo in (None, ECHO, None):
        request = driver.submit(LONG, 3, SCORED if echo else GREEDY, echo=echo)
        driver.run()
        cached = finished(driver.events[request]).usage.cached
        assert (cached > 0) == (request == "2")
    check(folder, LONG, driver.events["1"])
    assert driver.tokens[0] == driver.tokens[1] == driver.tokens[2]


def test_a_prompt_that_is_computed_again_is_told_once(tiny_model: TinyModel) -> None:
    folder = tiny_model("qwen3")
    account = MemoryAccount(kv_limit=3 * MEGABYTE // 2)
    driver = Driver(folder, account=account)
    driver.engine.admission.preemption.max_reserved_tokens = 1
    prompts = [tuple(300 + (i * 11 + j) % 1500 for j in range(230)) for i in range(4)]
    for prompt in prompts:
        driver.submit(prompt, 40, SCORED, echo=chunks_of(60))
    driver.run()
    assert driver.engine.statistics().admission.preempted
    for request, prompt in enumerate(prompts):
        check(folder, prompt, driver.events[str(request)])
        assert finished(driver.events[str(request)]).usage.generated == 40


@pytest.mark.parametrize("prompt", [PROMPT, PROMPT[:1], PROMPT[:2]])
@pytest.mark.parametrize("n", [1, 2])
def test_only_the_prompt_may_be_wanted(tiny_model: TinyModel, prompt: tuple[int, ...], n: int) -> None:
    folder = tiny_model("qwen3")
    driver = Driver(folder)
    driver.submit(prompt, 0, GenerationParameters(n=n, logprobs=True, top_logprobs=3), echo=ECHO)
    driver.submit(prompt, 0, GenerationParameters(n=n))
    driver.run()
    for request in ("0", "1"):
        events = driver.events[request]
        ends: list[Any] = [event for event in events if hasattr(event, "reason")]
        assert [(end.reason, end.usage.prompt, end.usage.generated) for end in ends] == [
            ("length", len(prompt), 0)
        ] * n
        assert text_of(events) == ""
    for index in range(n):
        check(folder, prompt, driver.events["0"], index)


def test_characters_that_tokens_share_are_whole_and_what_the_server_added_is_hidden(
    tiny_model: TinyModel,
) -> None:
    folder = tiny_model("qwen3")
    tokenizer = loaded(folder)[1].tokenizer
    text = "a \u6d77 \U0001f30a b"
    tokens = [ident for piece in tokenizer.encode_prompt(text) for ident in piece]
    driver = Driver(folder)
    driver.submit(tokens, 1, SCORED, echo=EchoedPrompt(text, 0, scored=True, vocabulary=64 * MEGABYTE))
    driver.submit([PROMPT[0], *tokens], 1, SCORED, echo=EchoedPrompt(text, 1, scored=True, vocabulary=2048))
    driver.run()
    shown, _, _ = prompt_of(driver.events["0"])
    assert shown == text
    shown, firsts, _ = prompt_of(driver.events["1"])
    assert shown == text
    assert firsts[0] == Token(loaded(folder)[1].token(PROMPT[0]).text, b"")

"""The probe of models that write: calls, reasoning and, for vision models, an image."""

from __future__ import annotations

import attrs

from greenroom.engine.adapters.adapter import Adapter
from greenroom.engine.probe.formats import WEATHER, choose_reasoning_parser, choose_tool_parser, reasons
from greenroom.engine.probe.questions import SEED, Answer, Question
from greenroom.schemas.messages.generation import Overrides
from greenroom.schemas.messages.messages import ImagePart, Message, TextPart, Tool
from greenroom.schemas.messages.reasoning import ReasoningSettings
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.capabilities import ProbedCapabilities

MAX_TOKENS = 1024
"""Longest answer in tokens; models that reason often need some hundreds before a call."""

CITIES = ("Paris", "Cairo", "Lima", "Oslo")
_PLAIN = ("What is the sum of 2 and 3?", "Name a fruit.")
_IMAGE = "What is in this picture?"


@attrs.frozen
class TextProbe:
    """The questions to a model that writes.

    Args:
        known: Record without findings of the probe.
        questions: Questions from `open_text_probe`.
        adapter: Adapter that serves the model; only its parsers are used, on any thread.
    """

    known: ProbedCapabilities
    questions: tuple[Question, ...]
    adapter: Adapter

    def judge(self, answers: tuple[Answer, ...]) -> ProbedCapabilities:
        """Return the record with the parsers that read these answers."""
        own, choice = self.adapter.reasoning_parser, self.adapter.choice
        written = [answer for answer in answers if answer.question.prompt]
        thoughtful = [answer for answer in written if answer.question.thinking is not False]
        switched_off = [answer for answer in written if answer.question.thinking is False]
        reasoning = choose_reasoning_parser(own, thoughtful)
        asked = [answer for answer in answers if answer.question.city]
        calls = choose_tool_parser(choice.tool_parser, reasoning or own, asked)
        toggles = thinks = None
        if reasoning is not None:
            thinks = True
            if switched_off:
                toggles = not any(reasons(answer, reasoning) for answer in switched_off)
        elif all(answer.is_whole for answer in thoughtful):
            thinks = False
        return attrs.evolve(
            self.known,
            tool_parser_id=None if calls is None else calls.parser_id,
            thinking_parser_id=None if reasoning is None else reasoning.parser_id,
            supports_native_tools=choice.native_tools,
            supports_thinking=thinks,
            supports_toggle=toggles,
            tool_format=None if calls is None else "native" if choice.native_tools else "injection",
        )


def open_text_probe(
    known: ProbedCapabilities,
    adapter: Adapter,
    image: ImagePart | None = None,
    max_tokens: int = MAX_TOKENS,
) -> TextProbe:
    """Return the probe of a text or vision model; renders its prompts, on the adapter's own thread.

    Args:
        known: Record without findings of the probe.
        image: Image to ask about; None for text models.
        max_tokens: Longest answer in tokens.

    Raises:
        ProblemError: The model's template cannot render the questions.
    """
    switches: tuple[bool | None, ...] = (True, False) if adapter.thinking.off is not None else (None,)
    cities = CITIES[: len(CITIES) // len(switches)]
    questions: list[Question] = []
    for thinking in switches:
        for city in cities:
            asked = f"What is the weather in {city}?"
            questions.append(Question(_chat(asked, thinking, (WEATHER,)), city=city, thinking=thinking))
        questions += [Question(_chat(text, thinking), thinking=thinking) for text in _PLAIN]
    overrides = {"max_tokens": max_tokens, "seed": SEED}
    prompted = [
        attrs.evolve(question, overrides=overrides, prompt=_prompt(adapter, question, overrides))
        for question in questions
    ]
    if image is not None:
        shown = ChatInput((Message("user", (image, TextPart(_IMAGE))),), system_prompt="")
        prompted.append(Question(shown, {"max_tokens": min(max_tokens, 64), "seed": SEED}))
    return TextProbe(known, tuple(prompted), adapter)


def _prompt(adapter: Adapter, question: Question, overrides: Overrides) -> str:
    request = InferenceRequest("probe", ModelKey("probe"), question.input, overrides)
    return adapter.render_prompt(request).text


def _chat(text: str, thinking: bool | None, tools: tuple[Tool, ...] = ()) -> ChatInput:
    asked = Message("user", (TextPart(text),))
    return ChatInput((asked,), tools, thinking=ReasoningSettings(enabled=thinking), system_prompt="")

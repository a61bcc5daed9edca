"""The probes of each kind of model: those that write, those that give vectors, those for sound."""

from __future__ import annotations

import math
import struct
import wave
from pathlib import Path

import attrs

from greenroom.engine.adapters.adapter import Adapter
from greenroom.engine.probe.probe import (
    SEED,
    WEATHER,
    Answer,
    Question,
    choose_reasoning_parser,
    choose_tool_parser,
    reasons,
)
from greenroom.schemas.events.result_events import AudioChunk, Score, Vector
from greenroom.schemas.messages.generation import Overrides
from greenroom.schemas.messages.messages import ImagePart, Message, ReasoningSettings, TextPart, Tool
from greenroom.schemas.messages.requests import (
    ChatInput,
    EmbeddingInput,
    InferenceRequest,
    ScoreInput,
    SpeechInput,
    TranscriptionInput,
)
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.capabilities import ProbedCapabilities
from greenroom.schemas.problems import Problem, ProblemError

MAX_TOKENS = 1024  # Longest answer in tokens; models that reason often need some hundreds before a call

CITIES = ("Paris", "Cairo", "Lima", "Oslo")
_PLAIN = ("What is the sum of 2 and 3?", "Name a fruit.")
_IMAGE = "What is in this picture?"


@attrs.frozen
class TextProbe:
    """The questions to a model that writes. `questions`: questions from `open_text_probe`; `adapter`: adapter
    that serves the model; only its parsers are used, on any thread.
    """

    known: ProbedCapabilities
    questions: tuple[Question, ...]
    adapter: Adapter

    def judge(self, answers: tuple[Answer, ...]) -> ProbedCapabilities:
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
    known: ProbedCapabilities, adapter: Adapter, image: ImagePart | None = None, max_tokens: int = MAX_TOKENS
) -> TextProbe:
    """Return the probe of a text or vision model; renders its prompts, on the adapter's own thread. Raises
    ProblemError: the model's template cannot render the questions.
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


_TEXTS = ("The sea is calm today.", "It rains.")
_TOLERANCE = 1e-3  # Largest deviation of a unit vector's length from 1, which 16-bit weights cause


@attrs.frozen
class EmbeddingProbe:
    """The question to a model that embeds: the vectors of two texts."""

    known: ProbedCapabilities
    questions = (Question(EmbeddingInput(_TEXTS)),)

    def judge(self, answers: tuple[Answer, ...]) -> ProbedCapabilities:
        """Return the record with the vectors' length in numbers, and whether they are unit vectors. Raises
        ProblemError: A vector holds something that is no number.
        """
        vectors = [_numbers(event) for event in answers[0].events if isinstance(event, Vector)]
        if len(vectors) != len(_TEXTS) or not all(math.isfinite(x) for vector in vectors for x in vector):
            raise ProblemError(unusable(self.known.model_id, "its vectors are not finite numbers"))
        normalized = all(abs(math.hypot(*vector) - 1) <= _TOLERANCE for vector in vectors)
        return attrs.evolve(self.known, embedding_dimensions=len(vectors[0]), is_normalized=normalized)


@attrs.frozen
class RerankProbe:
    """The question to a model that ranks: the scores of two documents."""

    known: ProbedCapabilities
    questions = (Question(ScoreInput(tuple(("Is the sea calm?", text) for text in _TEXTS))),)

    def judge(self, answers: tuple[Answer, ...]) -> ProbedCapabilities:
        """Return the record. Raises ProblemError: A score is not between 0 and 1."""
        scores = [event.value for event in answers[0].events if isinstance(event, Score)]
        if len(scores) != len(_TEXTS) or not all(0 <= score <= 1 for score in scores):
            raise ProblemError(unusable(self.known.model_id, "its scores are not between 0 and 1"))
        return self.known


def unusable(model: str, reason: str) -> Problem:
    return Problem(500, "probe_failed", f"The model '{model}' failed its probe: {reason}.")


def _numbers(vector: Vector) -> tuple[float, ...]:
    return struct.unpack(f"<{len(vector.values) // 4}f", vector.values)


_RATE = 16_000
_SECONDS = 1


@attrs.frozen
class SpeechProbe:
    """The question to a model that speaks: one word."""

    known: ProbedCapabilities
    questions = (Question(SpeechInput("Hello.")),)

    def judge(self, answers: tuple[Answer, ...]) -> ProbedCapabilities:
        """Return the record. Raises ProblemError: the model remained silent."""
        if not any(event.samples for event in answers[0].events if isinstance(event, AudioChunk)):
            raise ProblemError(unusable(self.known.model_id, "it generated no sound"))
        return self.known


@attrs.frozen
class TranscriptionProbe:
    """The question to a model that transcribes: a second of a changing tone, as long as a word.

    Whatever the model hears in it is right, since nobody speaks.
    """

    known: ProbedCapabilities
    recording: Path

    @property
    def questions(self) -> tuple[Question, ...]:
        return (Question(TranscriptionInput(str(self.recording))),)

    def judge(self, answers: tuple[Answer, ...]) -> ProbedCapabilities:
        return self.known


def write_recording(path: Path) -> None:
    steps = [200 + 400 * math.sin(2 * math.pi * 3 * n / _RATE) for n in range(_RATE * _SECONDS)]
    tone = [int(8_000 * math.sin(2 * math.pi * step * n / _RATE)) for n, step in enumerate(steps)]
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(_RATE)
        file.writeframes(struct.pack(f"<{len(tone)}h", *tone))

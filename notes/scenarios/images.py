"""Requests with images, and second turns about the same images."""

from __future__ import annotations

import base64
import io
import random
from collections.abc import Mapping, Sequence
from typing import ClassVar

import attrs

from greenroom.tests.bench.figures import Metric, Sample, percentile
from greenroom.tests.bench.load_client import ChatMessages, Prompts
from greenroom.tests.bench.long_prompt import LongPrompt, Newcomers
from greenroom.tests.bench.scenarios import CLIENT_CPU, SPEEDS, Scenario, client_cpu, speeds
from greenroom.tests.bench.servers import Exchange, Request, TargetServer

Size = tuple[int, int]
"""Width and height of an image, in pixels."""
_PATCH = 16
"""Pixels between random colors of an image; interpolation in between makes it smooth like a photograph."""
_QUESTION_WORDS = 8


@attrs.frozen
class Images(Scenario):
    """Concurrent streams about new images, and then a second turn of each.

    Args:
        streams: Number of concurrent streams.
        tokens: Longest response, in tokens.
        prompt_words: Length of the text after the images, in words.
        sizes: Sizes of the images of each request.
    """

    name: ClassVar[str] = "images"
    warm_ups: ClassVar[int] = 2
    metrics: ClassVar[Mapping[str, Metric]] = {
        **SPEEDS,
        "again_p50": Metric("first token of a second turn about the same images, p50", "ms", 1),
        "again_over_first": Metric("second turn over first"),
        "cached": Metric("cached share of the second turn's prompt"),
        **CLIENT_CPU,
    }

    streams: int
    tokens: int
    prompt_words: int
    sizes: tuple[Size, ...]

    @property
    def case(self) -> str:
        sizes = ", ".join(f"{width}x{height}" for width, height in self.sizes)
        return f"{self.streams} stream{'s' * (self.streams > 1)}, {sizes}"

    async def run(self, target: TargetServer, prompts: Prompts, number: int) -> Sample:
        asked = [
            Request(image_chat(prompts, self.prompt_words, self.sizes), self.tokens)
            for _ in range(self.streams)
        ]
        before = target.processor_time()
        first = await target.ask_together(asked)
        after = target.processor_time()
        answers = [exchange.answer for exchange in first]
        values = speeds(first) | client_cpu(answers, before, after)
        if any(answer.error for answer in answers):
            return Sample(values, answers)
        again = await target.ask_together(
            [Request(_second_turn(exchange, prompts), self.tokens) for exchange in first]
        )
        values |= _second_turns(again, values["first_p50"])
        return Sample(values, [*answers, *(exchange.answer for exchange in again)])


@attrs.frozen
class ImagesAmongStreams(LongPrompt):
    """A message with images among text streams that outlast it, alternating with such a message alone.

    Args:
        sizes: Sizes of the message's images.
    """

    name: ClassVar[str] = "images-among-streams"

    sizes: tuple[Size, ...] = ((640, 480),)

    @property
    def case(self) -> str:
        sizes = ", ".join(f"{width}x{height}" for width, height in self.sizes)
        return f"{sizes} among {self.streams} streams"

    async def newcomers(self, target: TargetServer) -> Newcomers:
        return lambda prompts: image_chat(prompts, self.stream_words, self.sizes)

    async def bare_milliseconds(self, target: TargetServer, alone: Exchange) -> float | None:
        return None  # mlx-lm's loops do not support images


def image_chat(prompts: Prompts, words: int, sizes: Sequence[Size]) -> ChatMessages:
    """Return a conversation of one message, with new images before its text."""
    source = random.Random(prompts.new_seed())
    images = [{"type": "image_url", "image_url": {"url": _image(source, *size)}} for size in sizes]
    return [{"role": "user", "content": [*images, {"type": "text", "text": prompts.text(words)}]}]


def _image(source: random.Random, width: int, height: int) -> str:
    """Return an image of random colors, as the `data:` URL of a JPEG."""
    from PIL import Image

    columns, rows = width // _PATCH + 2, height // _PATCH + 2
    colors = Image.frombytes("RGB", (columns, rows), source.randbytes(3 * columns * rows))
    file = io.BytesIO()
    colors.resize((width, height), Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()


def _second_turn(exchange: Exchange, prompts: Prompts) -> ChatMessages:
    answer = {"role": "assistant", "content": exchange.answer.text}
    return [*exchange.messages, answer, {"role": "user", "content": prompts.text(_QUESTION_WORDS)}]


def _second_turns(exchanges: Sequence[Exchange], first: float) -> dict[str, float]:
    """Return the figures of second turns, compared with the median of the first ones in milliseconds."""
    answers = [exchange.answer for exchange in exchanges if exchange.answer.arrivals]
    if not answers:
        return {}
    again = percentile([answer.time_to_first_token * 1e3 for answer in answers], 50)
    values = {"again_p50": again, "again_over_first": again / first}
    shares = [
        answer.cached_tokens / answer.prompt_tokens
        for answer in answers
        if answer.cached_tokens is not None and answer.prompt_tokens
    ]
    if shares:
        values["cached"] = min(shares)
    return values

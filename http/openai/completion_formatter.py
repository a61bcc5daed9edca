"""From events to the wire: continuations of raw prompts, as a stream or complete."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import attrs

from greenroom.http.answering.collected_answer import CollectedChoice
from greenroom.http.openai.chunk_stream import finish_reason, includes_usage, system_fingerprint
from greenroom.http.openai.completion_stream import CompletionStream
from greenroom.http.openai.logprobs import CompletionLogprobs
from greenroom.http.openai.timings import timings
from greenroom.http.openai.usage import usage_body
from greenroom.schemas.openai.answers import Completion, CompletionChoice
from greenroom.schemas.openai.completions import CompletionRequest


@attrs.frozen
class CompletionFormatter:
    """Formats the answer to the prompts of one request.

    Args:
        wire: What the client asked for.
        answer_id: `cmpl-…`.
        echoes: What the continuations of each prompt begin with.
        choices: How many continuations each prompt has.
        created: Unix time in seconds.
    """

    wire: CompletionRequest
    answer_id: str
    echoes: tuple[str, ...]
    choices: int = 1
    created: int = attrs.field(factory=lambda: int(time.time()))

    def stream(self, model: str) -> CompletionStream:
        """Return what formats the answer as chunks."""
        return CompletionStream(
            self.answer_id,
            model,
            self.created,
            self._echo_of_each_choice(),
            choices_per_prompt=self.choices,
            include_usage=includes_usage(self.wire.stream_options),
        )

    def whole(self, model: str, choices: Sequence[CollectedChoice]) -> dict[str, Any]:
        """Return the answer as `text_completion`."""
        echoes = self._echo_of_each_choice()
        finished = [choice.finished for choice in choices]
        answer = Completion(
            self.answer_id,
            self.created,
            model,
            tuple(_choice(i, *both) for i, both in enumerate(zip(echoes, choices, strict=True))),
            usage_body(finished, self.choices),
            timings(finished, self.choices),
            system_fingerprint(),
        )
        return attrs.asdict(answer)

    def _echo_of_each_choice(self) -> tuple[str, ...]:
        return tuple(echo for echo in self.echoes for _ in range(self.choices))


def _choice(index: int, echo: str, choice: CollectedChoice) -> CompletionChoice:
    logprobs = CompletionLogprobs(len(echo)).add(choice.logprobs)
    return CompletionChoice(index, echo + choice.text, finish_reason(choice.finished), logprobs)

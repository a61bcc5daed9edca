"""Formatting of text completions, streamed or complete."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from itertools import chain
from statistics import fmean
from typing import Any

import attrs

from greenroom.http.answering.collecting.collected_answer import CollectedChoice
from greenroom.http.openai.completions.completion_request import wants_logprobs
from greenroom.http.openai.completions.completion_stream import CompletionStream
from greenroom.http.openai.text.chunk_stream import (
    finish_reason,
    includes_status,
    includes_usage,
    system_fingerprint,
)
from greenroom.http.openai.text.logprobs import CompletionLogprobs
from greenroom.http.openai.text.timings import timings
from greenroom.http.openai.text.usage import usage_body
from greenroom.schemas.openai.answers import Completion, CompletionChoice, is_sent
from greenroom.schemas.openai.completions import CompletionRequest


@attrs.frozen
class CompletionFormatter:
    """Formats the response to the prompts of one request.

    Args:
        wire: Request of the client.
        answer_id: Id of the response, `cmpl-…`.
        choices: Number of choices returned per prompt.
        candidates: Number of candidates generated per prompt, of which the best are returned (`best_of`).
        created: Unix time in seconds.
    """

    wire: CompletionRequest
    answer_id: str
    choices: int = 1
    candidates: int = attrs.field(default=attrs.Factory(lambda self: self.choices, takes_self=True))
    created: int = attrs.field(factory=lambda: int(time.time()))

    def stream(self, model: str) -> CompletionStream:
        """Return a formatter for a streamed response."""
        return CompletionStream(
            self.answer_id,
            model,
            self.created,
            choices=len(self.wire.prompt.prompts) * self.choices,
            choices_per_prompt=self.choices,
            include_usage=includes_usage(self.wire.stream_options),
            with_status=includes_status(self.wire.stream_options),
        )

    def whole(self, model: str, choices: Sequence[CollectedChoice]) -> dict[str, Any]:
        """Return a complete response as `text_completion`."""
        finished = [choice.finished for choice in choices]
        answer = Completion(
            self.answer_id,
            self.created,
            model,
            tuple(self._choice(*each) for each in enumerate(self._best(choices))),
            usage_body(finished, self.candidates),
            timings(finished, self.candidates),
            system_fingerprint(),
        )
        return attrs.asdict(answer, filter=is_sent)

    def _best(self, candidates: Sequence[CollectedChoice]) -> Iterator[CollectedChoice]:
        """Yield the candidates of each prompt with the highest mean log-probability."""
        for at in range(0, len(candidates), self.candidates):
            group = candidates[at : at + self.candidates]
            ranked = sorted(group, key=_mean_logprob, reverse=True) if len(group) > self.choices else group
            yield from ranked[: self.choices]

    def _choice(self, index: int, choice: CollectedChoice) -> CompletionChoice:
        text = "".join(piece.text for piece in choice.prompt) + choice.text
        logprobs: dict[str, Any] | None = None
        if wants_logprobs(self.wire):
            first = next((piece.first for piece in choice.prompt), None)
            prompt = chain.from_iterable(piece.logprobs for piece in choice.prompt)
            logprobs = CompletionLogprobs().add(chain(prompt, choice.logprobs), first, empty=True)
        finished = choice.finished
        return CompletionChoice(index, text, finish_reason(finished), finished.stop, logprobs)


def _mean_logprob(choice: CollectedChoice) -> float:
    """Return the mean log-probability of a choice's tokens; an empty choice ranks last."""
    return fmean(entry.logprob for entry in choice.logprobs) if choice.logprobs else -math.inf

"""What the streamed answers of OpenAI's protocols have in common: head, ends, usage and failures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache

import attrs

from greenroom.http.answering.json_encoding import json_ascii, json_string
from greenroom.http.openai.errors import error_object
from greenroom.schemas.events import Finished
from greenroom.schemas.openai.answers import usage_body
from greenroom.schemas.problems import Problem

DONE = b"data: [DONE]\n\n"


@cache
def system_fingerprint() -> str:
    """Return which build answers."""
    from importlib.metadata import version

    return f"fp_greenroom_{version('greenroom')}"


class OpenAIStream(ABC):
    """Formats one streamed answer of one or several choices.

    Args:
        kind: `object` of its chunks.
        answer_id: The same in every chunk.
        created: Unix time in seconds.
        streams: How many choices are streamed side by side.
        choices: How many of them each prompt has.
        include_usage: The client asked for a usage chunk at the end.
    """

    def __init__(
        self,
        kind: str,
        answer_id: str,
        model: str,
        created: int,
        *,
        streams: int,
        choices: int,
        include_usage: bool,
    ) -> None:
        self.finished = False
        self._streams = streams
        self._choices = choices
        self._include_usage = include_usage
        self._usage = b',"usage":null' if include_usage else b""
        self._ends: list[Finished] = []
        said = (json_string(answer_id), json_string(kind), created, json_string(model))
        fingerprint = json_string(system_fingerprint())
        self._head = b'data: {"id":%b,"object":%b,"created":%d,"model":%b,"system_fingerprint":%b,' % (
            *said,
            fingerprint,
        )

    def failure(self, problem: Problem) -> bytes:
        """The end of an answer that cannot be completed."""
        self.finished = True
        return b'data: {"error":%b}\n\n' % json_ascii(error_object(problem)) + DONE

    @abstractmethod
    def _last_chunk(self, index: int, reason: bytes) -> bytes:
        """The chunk that ends a choice, with its reason as JSON."""

    def _ending(self, event: Finished) -> bytes:
        self._ends.append(event)
        ending = self._last_chunk(event.index, json_string(finish_reason(event)))
        if len(self._ends) < self._streams:
            return ending
        self.finished = True
        if self._include_usage:
            usage = json_ascii(attrs.asdict(usage_body(self._ends, self._choices)))
            ending += self._head + b'"choices":[],"usage":%b}\n\n' % usage
        return ending + DONE


def finish_reason(event: Finished) -> str:
    """Why it ended, in OpenAI's words."""
    return "stop" if event.reason == "cancelled" else event.reason

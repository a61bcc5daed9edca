"""Shared formatting of OpenAI's streams: chunk headers, ends, usage and failures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache

import attrs

from greenroom.http.answering.streaming.waiting_news import TellsNews
from greenroom.http.encoding.json_encoding import json_ascii, json_string
from greenroom.http.encoding.server_sent_events import SERVER_SENT_EVENTS
from greenroom.http.errors.openai_errors import error_object
from greenroom.http.openai.text.timings import timings
from greenroom.http.openai.text.usage import usage_body
from greenroom.schemas.events.events import Admitted, Failed, Finished, InferenceEvent
from greenroom.schemas.openai.answers import is_sent
from greenroom.schemas.openai.chat import StreamOptions
from greenroom.schemas.problems import Problem

DONE = b"data: [DONE]\n\n"


class ChunkStream(TellsNews, ABC):
    """Formats a streamed chat or completion, with one or more choices, as OpenAI's chunks.

    Args:
        kind: Field `object` of its chunks.
        answer_id: Id of the response, the same in every chunk.
        created: Unix time in seconds.
        choices: Number of choices that are streamed concurrently.
        choices_per_prompt: Number of choices of each prompt.
        include_usage: True if the client requested a usage chunk at the end.
        with_status: True if the client requested news while it waits.
    """

    content_type = SERVER_SENT_EVENTS

    def __init__(
        self,
        kind: str,
        answer_id: str,
        model: str,
        created: int,
        *,
        choices: int,
        choices_per_prompt: int,
        include_usage: bool,
        with_status: bool = False,
    ) -> None:
        super().__init__()
        self.finished = False
        self._with_status = with_status
        self._choices = choices
        self._choices_per_prompt = choices_per_prompt
        self._include_usage = include_usage
        self._usage = b',"usage":null' if include_usage else b""
        self._finished_choices: list[Finished] = []
        self._dropped_messages = 0
        self._head = b'data: {"id":%b,"object":%b,"created":%d,"model":%b,"system_fingerprint":%b,' % (
            json_string(answer_id),
            json_string(kind),
            created,
            json_string(model),
            json_string(system_fingerprint()),
        )

    def heartbeat(self) -> bytes:
        """Return a chunk without text, since some clients fail on comments."""
        return self._with_members(self._empty_chunk(), self._news.members())

    def event(self, event: InferenceEvent) -> bytes:
        """Return the chunks for an event that ends a choice or the whole response; no bytes for any other."""
        match event:
            case Admitted(dropped_messages=dropped):
                self._dropped_messages = dropped
                return b""
            case Finished():
                return self._finish_choice(event)
            case Failed(problem):
                return self.failure(problem)
            case _:
                return b""

    def failure(self, problem: Problem) -> bytes:
        self.finished = True
        return b'data: {"error":%b}\n\n' % json_ascii(error_object(problem)) + DONE

    @staticmethod
    def _with_members(chunk: bytes, members: bytes) -> bytes:
        """Return a chunk with further members behind its own."""
        return chunk.removesuffix(b"}\n\n") + members + b"}\n\n" if members else chunk

    @abstractmethod
    def _empty_chunk(self) -> bytes:
        """Return a chunk without text."""

    @abstractmethod
    def _last_chunk(self, index: int, reason: bytes, stop: bytes) -> bytes:
        """Return the chunk that ends a choice, given its finish reason and matched stop string as JSON."""

    def _finish_choice(self, event: Finished) -> bytes:
        self._finished_choices.append(event)
        stop = b"null" if event.stop is None else json_string(event.stop)
        ending = self._last_chunk(event.index, json_string(finish_reason(event)), stop)
        if len(self._finished_choices) < self._choices:
            return ending
        self.finished = True
        if self._include_usage:
            body = usage_body(self._finished_choices, self._choices_per_prompt)
            usage = json_ascii(attrs.asdict(body, filter=is_sent))
            ending += self._head + b'"choices":[],"usage":%b}\n\n' % usage
        speed = json_ascii(attrs.asdict(timings(self._finished_choices, self._choices_per_prompt)))
        dropped = b',"dropped_messages":%d' % self._dropped_messages if self._dropped_messages else b""
        return ending.removesuffix(b"}\n\n") + b',"timings":%b%b}\n\n' % (speed, dropped) + DONE


@cache
def system_fingerprint() -> str:
    """Return a name for this build of the server."""
    from importlib.metadata import version

    return f"fp_greenroom_{version('greenroom')}"


def finish_reason(event: Finished) -> str:
    """Return the finish reason of a choice in OpenAI's terms."""
    return "stop" if event.reason == "cancelled" else event.reason


def includes_status(options: StreamOptions | None) -> bool:
    """Return whether the client of a stream requested news while it waits."""
    return bool(options and options.include_status)


def includes_usage(options: StreamOptions | None) -> bool:
    return bool(options and (options.include_usage or options.include_explain))

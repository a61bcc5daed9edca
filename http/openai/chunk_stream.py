"""Shared parts of OpenAI's endpoints for text: parameters, chunks, log-probabilities, timings and usage."""

from __future__ import annotations

import codecs
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, ClassVar

import attrs

from greenroom.http.answering.event_stream import TellsNews
from greenroom.http.answering.explanation_body import explanation_of
from greenroom.http.answering.request_parameters import NeutralValues, ParameterTable
from greenroom.http.encoding.encoding import (
    SERVER_SENT_EVENTS,
    finite_logprob,
    json_ascii,
    json_string,
    token_logprobs,
)
from greenroom.http.encoding.problem_documents import error_object
from greenroom.schemas.events.events import Admitted, Failed, Finished, InferenceEvent, Token, TokenLogprob
from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.problems import Problem
from greenroom.schemas.wire.openai_answers import Timings, UsageBody, is_sent
from greenroom.schemas.wire.openai_chat import StreamOptions

DONE = b"data: [DONE]\n\n"


class ChunkStream(TellsNews, ABC):
    """Formats a streamed chat or completion, with one or more choices, as OpenAI's chunks.

    Args:
        answer_id: Id of the response, the same in every chunk.
        created: Unix time in seconds.
        include_usage: True if the client requested a usage chunk at the end.
        with_status: True if the client requested news while it waits.
    """

    content_type = SERVER_SENT_EVENTS
    kind: ClassVar[str]
    """Field `object` of its chunks."""

    def __init__(
        self,
        answer_id: str,
        model: str,
        created: int,
        *,
        choices: int = 1,
        choices_per_prompt: int = 1,
        include_usage: bool = False,
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
            json_string(self.kind),
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
    return "stop" if event.reason == "cancelled" else event.reason


def includes_status(options: StreamOptions | None) -> bool:
    """Return whether the client of a stream requested news while it waits."""
    return bool(options and options.include_status)


def includes_usage(options: StreamOptions | None) -> bool:
    return bool(options and (options.include_usage or options.include_explain))


def chat_logprobs(logprobs: Sequence[TokenLogprob], empty: bool = False) -> bytes:
    """Return the `logprobs` object of a chat's choice; null if there are none, unless it may be `empty`."""
    if not (logprobs or empty):
        return b"null"
    return b'{"content":%b,"refusal":null}' % token_logprobs(logprobs)


class CompletionLogprobs:
    """Builds the `logprobs` objects of one choice, which carry running text offsets."""

    def __init__(self) -> None:
        self._offset = 0
        self._characters = codecs.getincrementaldecoder("utf-8")("replace")

    def add(
        self, logprobs: Iterable[TokenLogprob], first: Token | None = None, *, empty: bool = False
    ) -> dict[str, Any] | None:
        """Return the object for the next tokens; None if there are none, unless it may be `empty`. `first`:
        first token of a prompt, which precedes `logprobs` and has no log-probability.
        """
        tokens: list[str] = []
        values: list[float | None] = []
        tops: list[dict[str, float] | None] = []
        offsets: list[int] = []
        if first is not None:
            tokens.append(_name(first))
            values.append(None)
            tops.append(None)
            offsets.append(self._advance(first))
        for entry in logprobs:
            value = finite_logprob(entry.logprob)
            tokens.append(_name(entry.token))
            values.append(value)
            offsets.append(self._advance(entry.token))
            # Several tokens can have the same name: the most likely of them counts.
            top = {_name(token): finite_logprob(value) for token, value in reversed(entry.top)}
            tops.append({_name(entry.token): value, **dict(reversed(top.items()))} if top else {})
        if not (tokens or empty):
            return None
        return {"tokens": tokens, "token_logprobs": values, "top_logprobs": tops, "text_offset": offsets}

    def _advance(self, token: Token) -> int:
        """Return the offset of a token in characters, and move past it."""
        begins = self._offset
        self._offset += len(self._characters.decode(token.bytes))
        return begins


def _name(token: Token) -> str:
    r"""Return a token's text; for a part of a character its bytes in OpenAI's form (`bytes:\xf0\x9f`)."""
    if "\N{REPLACEMENT CHARACTER}" not in token.text or token.text.encode() == token.bytes:
        return token.text
    return "bytes:" + "".join(chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}" for byte in token.bytes)


# Timing figures in the format of llama.cpp's server.
#
# Source: its `timings` object; the values are those of the answer's statistics.


def timings(finished: Sequence[Finished], choices: int) -> Timings:
    """Return the timings of a request whose choices were generated concurrently. `choices`: number of choices
    per prompt; each prompt counts once.
    """
    prompts = [event for event in finished if event.index % choices == 0]
    cached = sum(event.usage.cached for event in prompts)
    computed = sum(event.usage.prompt for event in prompts) - cached
    generated = sum(event.usage.generated for event in finished)
    prefill = max(event.timing.prefill for event in finished)
    decode = max(event.timing.decode for event in finished)
    total = max(sum(attrs.astuple(event.timing)) for event in finished)
    return Timings(
        cache_n=cached,
        prompt_n=computed,
        prompt_ms=_milliseconds(prefill),
        prompt_per_token_ms=_ratio(prefill * 1e3, computed),
        prompt_per_second=_ratio(computed, prefill),
        predicted_n=generated,
        predicted_ms=_milliseconds(decode),
        predicted_per_token_ms=_ratio(decode * 1e3, generated),
        predicted_per_second=_ratio(generated, decode),
        queued_ms=_milliseconds(min(event.timing.queued for event in finished)),
        total_ms=_milliseconds(total),
    )


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1e3, 3)


def _ratio(amount: float, by: float) -> float:
    return round(amount / by, 3) if by else 0.0


def usage_body(finished: Iterable[Finished], choices: int) -> UsageBody:
    """Return the token usage of a request, summed over its prompts. `choices`: number of choices per prompt;
    each prompt counts once.
    """
    finished = list(finished)
    usages = [event.usage for event in finished]
    prompts = [event.usage for event in finished if event.index % choices == 0]
    prompt, generated = sum(usage.prompt for usage in prompts), sum(usage.generated for usage in usages)
    return UsageBody(
        prompt_tokens=prompt,
        completion_tokens=generated,
        total_tokens=prompt + generated,
        prompt_tokens_details={
            "cached_tokens": sum(usage.cached for usage in prompts),
            "cache_write_tokens": sum(usage.written for usage in prompts),
            "audio_tokens": 0,
            "image_tokens": sum(usage.images for usage in prompts),
        },
        completion_tokens_details={
            "reasoning_tokens": sum(usage.reasoning for usage in usages),
            "audio_tokens": 0,
            "accepted_prediction_tokens": sum(usage.accepted for usage in usages),
            "rejected_prediction_tokens": sum(usage.drafted - usage.accepted for usage in usages),
        },
        greenroom=explanation_of(finished, choices),
    )


# Names of generation parameters in OpenAI's endpoints and in extensions of other servers.
#
# Generation parameters are listed in these tables, all others in the wire types. Parameters that do not
# affect the response (`user`, `metadata`, `prompt_cache_key`, …) are not listed.

_SAME_NAME = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "stop",
    "stop_token_ids",
    "min_tokens",
    "ignore_eos",
    "seed",
    "n",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "logit_bias",
    "xtc_probability",
    "xtc_threshold",
    "max_tokens",
)

COMPLETION_PARAMETERS: ParameterTable = {name: name for name in _SAME_NAME}
"""Parameters of `POST /v1/completions`; its `logprobs` is a number and is parsed separately."""

CHAT_PARAMETERS: ParameterTable = {
    **COMPLETION_PARAMETERS,
    "max_completion_tokens": "max_tokens",
    "thinking.budget_tokens": "thinking_budget",
    "reasoning.max_tokens": "thinking_budget",
    "reasoning_max_tokens": "thinking_budget",
    "thinking_budget": "thinking_budget",
    "logprobs": "logprobs",
    "top_logprobs": "top_logprobs",
}
"""Parameters of `POST /v1/chat/completions`."""

_TOKENS_OF_VLLM: NeutralValues = {
    "prompt_logprobs": (),
    "return_token_ids": (False,),
    "return_tokens_as_token_ids": (False,),
}

UNSUPPORTED_IN_CHAT: NeutralValues = {
    **_TOKENS_OF_VLLM,
    "echo": (False,),
    "modalities": (["text"],),
    "audio": (),
    "web_search_options": (),
    "moderation": (),
    "service_tier": ("auto", "default", "flex"),
}

UNSUPPORTED_IN_COMPLETIONS: NeutralValues = {**_TOKENS_OF_VLLM, "truncation": ("disabled",)}


def without_no_limit(body: JsonObject) -> JsonObject:
    """Return a body without a limit of -1 tokens, which LM Studio's and llama.cpp's clients send for none."""
    limits = ("max_tokens", "max_completion_tokens")
    return {name: value for name, value in body.items() if not (name in limits and value == -1)}

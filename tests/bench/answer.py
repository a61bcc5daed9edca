"""Parsing of recorded streamed responses: arrivals, counts and errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import attrs
import h11

from greenroom.tests.bench.response_recorder import RecordedResponse


@attrs.frozen
class Answer:
    """One streamed response.

    Args:
        sent: Time of the request, in seconds of `time.perf_counter`.
        arrivals: Times at which content, reasoning or parts of a tool call arrived.
        tokens: Number of generated tokens by the server's count, else the number of arrivals.
        prompt_tokens: Number of prompt tokens by the server's count; 0 without one.
        cached_tokens: Number of cached prompt tokens by the server's count; None without one.
        alternatives: Number of top candidates for each token with a log-probability.
        error: Reason for a missing or incomplete response.
        refused: True if the server sent an error status.
    """

    sent: float
    arrivals: tuple[float, ...]
    tokens: int
    prompt_tokens: int = 0
    cached_tokens: int | None = None
    text: str = ""
    alternatives: tuple[int, ...] = ()
    error: str | None = None
    refused: bool = False

    @property
    def time_to_first_token(self) -> float:
        """Time to first token, in seconds."""
        return self.arrivals[0] - self.sent

    @property
    def inter_token_latencies(self) -> list[float]:
        """Inter-token latencies, in seconds."""
        return [later - earlier for earlier, later in zip(self.arrivals, self.arrivals[1:], strict=False)]


class _RefusedError(ValueError):
    """The status is not 200."""


def parse_answer(response: RecordedResponse) -> Answer:
    """Parse a recorded response of `POST /v1/chat/completions` with `stream`."""
    arrivals: list[float] = []
    text: list[str] = []
    alternatives: list[int] = []
    usage: dict[str, Any] = {}
    refused = False
    try:
        for now, chunk in _chunks(response):
            if "error" in chunk:
                raise ValueError(str(chunk["error"].get("message", chunk["error"])))
            usage = chunk.get("usage") or usage
            for choice in chunk.get("choices", ()):
                delta = choice.get("delta", {})
                piece = delta.get("content") or delta.get("reasoning_content") or delta.get("reasoning")
                if piece or delta.get("tool_calls"):
                    arrivals.append(now)
                    text.append(piece or "")
                scored = (choice.get("logprobs") or {}).get("content") or ()
                alternatives += (len(token.get("top_logprobs") or ()) for token in scored)
        error = response.error or (None if arrivals else "the answer is empty")
    except (ValueError, KeyError, AttributeError, h11.RemoteProtocolError) as problem:
        error = str(problem) or type(problem).__name__
        refused = isinstance(problem, _RefusedError)
    return Answer(
        sent=response.sent,
        arrivals=tuple(arrivals),
        tokens=usage.get("completion_tokens", len(arrivals)),
        prompt_tokens=usage.get("prompt_tokens", 0),
        cached_tokens=(usage.get("prompt_tokens_details") or {}).get("cached_tokens"),
        text="".join(text),
        alternatives=tuple(alternatives),
        error=error,
        refused=refused,
    )


def _chunks(response: RecordedResponse) -> Iterator[tuple[float, dict[str, Any]]]:
    """Yield the JSON documents of the server-sent events, with their arrivals.

    Raises:
        ValueError: The server refused, or did not send JSON.
    """
    unfinished = b""
    for now, data in _body(response):
        *events, unfinished = (unfinished + data.replace(b"\r\n", b"\n")).split(b"\n\n")
        for event in events:
            for line in event.split(b"\n"):
                if line.startswith(b"data:") and line[5:].strip() != b"[DONE]":
                    yield now, json.loads(line[5:])


def _body(response: RecordedResponse) -> Iterator[tuple[float, bytes]]:
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method="GET", target="/", headers=[("Host", "x")]))
    status, refusal = 0, b""
    if not any(data for _, data in response.chunks):
        raise ValueError(response.error or "the server hung up without an answer")
    end = [] if response.disconnected else [(0.0, b"")]
    for now, data in [*response.chunks, *end]:
        if connection.their_state is h11.DONE:
            break
        connection.receive_data(data)
        while not isinstance(event := connection.next_event(), type):
            match event:
                case h11.Response():
                    status = event.status_code
                case h11.Data() if status == 200:
                    yield now, bytes(event.data)
                case h11.Data():
                    refusal += event.data
                case h11.EndOfMessage() | h11.ConnectionClosed():
                    break
    if status != 200:
        raise _RefusedError(_refusal(status, refusal))


def _refusal(status: int, body: bytes) -> str:
    try:
        return f"HTTP {status}: {json.loads(body)['error']['message']}"
    except (ValueError, KeyError, TypeError):
        return f"HTTP {status}: {body.decode('utf-8', 'replace')[:200]}"

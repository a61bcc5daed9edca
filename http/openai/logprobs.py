"""From log-probabilities to the wire: OpenAI's objects for chats and for raw completions."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from typing import Any

from greenroom.http.answering.json_encoding import finite_logprob
from greenroom.http.answering.token_logprobs import token_logprobs
from greenroom.schemas.events import TokenLogprob


def chat_logprobs(logprobs: Sequence[TokenLogprob]) -> bytes:
    """Return the `logprobs` object of a chat's choice; null if there are none."""
    if not logprobs:
        return b"null"
    return b'{"content":%b,"refusal":null}' % token_logprobs(logprobs)


class CompletionLogprobs:
    """The `logprobs` objects of one raw continuation, piece by piece.

    Args:
        offset: Characters that stand before it in the choice's text.
    """

    def __init__(self, offset: int = 0) -> None:
        self._offset = offset
        self._characters = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, logprobs: Iterable[TokenLogprob]) -> dict[str, Any] | None:
        """Return the object for the next tokens; None if there are none."""
        tokens: list[str] = []
        values: list[float] = []
        tops: list[dict[str, float]] = []
        offsets: list[int] = []
        for entry in logprobs:
            tokens.append(entry.token.text)
            values.append(finite_logprob(entry.logprob))
            offsets.append(self._offset)
            self._offset += len(self._characters.decode(entry.token.bytes))
            # Several tokens can have the same text: the likeliest of them counts.
            top = {token.text: finite_logprob(value) for token, value in reversed(entry.top)}
            tops.append({entry.token.text: values[-1], **dict(reversed(top.items()))} if top else {})
        if not tokens:
            return None
        return {
            "tokens": tokens,
            "token_logprobs": values,
            "top_logprobs": tops if any(tops) else None,
            "text_offset": offsets,
        }

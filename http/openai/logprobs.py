"""From log-probabilities to the wire: OpenAI's objects for chats and for raw completions."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from greenroom.http.answering.json_encoding import json_ascii, json_string
from greenroom.schemas.events import Token, TokenLogprob

LEAST = -9999.0
"""What is said in place of minus infinity, which JSON does not have."""


def chat_logprobs(scores: Sequence[TokenLogprob]) -> bytes:
    """The `logprobs` object of a chat's choice; null if there are none."""
    if not scores:
        return b"null"
    return b'{"content":[%b],"refusal":null}' % b",".join(map(_scored, scores))


def _scored(score: TokenLogprob) -> bytes:
    top = b",".join(
        [b'{%b,"logprob":%.6f}' % (_named(token), max(value, LEAST)) for token, value in score.top]
    )
    said = (_named(score.token), max(score.logprob, LEAST), top)
    return b'{%b,"logprob":%.6f,"top_logprobs":[%b]}' % said


@lru_cache(maxsize=65536)
def _named(token: Token) -> bytes:
    """The members that are the same whenever the token comes up."""
    return b'"token":%b,"bytes":%b' % (json_string(token.text), json_ascii(list(token.bytes)))


class CompletionLogprobs:
    """The `logprobs` objects of one raw continuation, piece by piece.

    Args:
        offset: Characters that stand before it in the choice's text.
    """

    def __init__(self, offset: int = 0) -> None:
        self._offset = offset
        self._characters = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, scores: Iterable[TokenLogprob]) -> dict[str, Any] | None:
        """The object for the next tokens; None if there are none."""
        tokens: list[str] = []
        values: list[float] = []
        tops: list[dict[str, float]] = []
        offsets: list[int] = []
        for score in scores:
            tokens.append(score.token.text)
            values.append(_rounded(score.logprob))
            offsets.append(self._offset)
            self._offset += len(self._characters.decode(score.token.bytes))
            # Several tokens can read the same: the likeliest of them counts.
            top = {token.text: _rounded(value) for token, value in reversed(score.top)}
            tops.append({score.token.text: values[-1], **dict(reversed(top.items()))} if top else {})
        if not tokens:
            return None
        wanted = tops if any(tops) else None
        return {"tokens": tokens, "token_logprobs": values, "top_logprobs": wanted, "text_offset": offsets}


def _rounded(logprob: float) -> float:
    return round(max(logprob, LEAST), 6)

"""OpenAI's `logprobs` objects for chats and text completions."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from typing import Any

from greenroom.http.encoding.json_encoding import finite_logprob
from greenroom.http.encoding.token_logprobs import token_logprobs
from greenroom.schemas.events.events import Token, TokenLogprob


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
        """Return the object for the next tokens; None if there are none, unless it may be `empty`.

        Args:
            first: First token of a prompt, which precedes `logprobs` and has no log-probability.
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
        return {
            "tokens": tokens,
            "token_logprobs": values,
            "top_logprobs": tops,
            "text_offset": offsets,
        }

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

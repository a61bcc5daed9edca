"""JSON of token log-probabilities as all of OpenAI's APIs but legacy completions have it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from greenroom.http.encoding.json_encoding import LOWEST, json_ascii, json_string
from greenroom.schemas.events.events import Token, TokenLogprob


def token_logprobs(logprobs: Sequence[TokenLogprob]) -> bytes:
    """Return the array of tokens and log-probabilities as JSON."""
    return b"[%b]" % b",".join(map(_token_logprob, logprobs))


def _token_logprob(entry: TokenLogprob) -> bytes:
    top = b",".join(
        [b'{%b,"logprob":%.6f}' % (_token_members(token), max(value, LOWEST)) for token, value in entry.top]
    )
    members = (_token_members(entry.token), max(entry.logprob, LOWEST), top)
    return b'{%b,"logprob":%.6f,"top_logprobs":[%b]}' % members


@lru_cache(maxsize=65536)
def _token_members(token: Token) -> bytes:
    """Return the members that are the same for every occurrence of a token."""
    return b'"token":%b,"bytes":%b' % (json_string(token.text), json_ascii(list(token.bytes)))

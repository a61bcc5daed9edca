"""Random walks through grammars: the output of a model with random weights under a constraint."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from ipaddress import IPv4Address, IPv6Address
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import attrs

from greenroom.engine.grammar.compiler import GrammarCompiler
from greenroom.engine.grammar.grammar_tokenizer import GrammarTokenizer
from greenroom.engine.grammar.matcher import Matcher
from greenroom.schemas.messages.requests import Constraint

END = "<|im_end|>"


@attrs.frozen
class Written:
    """The output of a walk; `stopped` is False if the token limit cut it short."""

    text: str
    tokens: list[int]
    stopped: bool


@attrs.frozen
class Grammars:
    """A tokenizer with its grammar compiler, and walks under compiled constraints."""

    tokenizer: GrammarTokenizer
    compiler: GrammarCompiler
    backend: str = attrs.field(repr=False)
    """JSON of the tokenizer."""

    def matcher(self, constraint: Constraint) -> Matcher:
        """Return a matcher of a constraint; fail if it constrains nothing."""
        matcher = self.compiler.compile(constraint)
        assert matcher is not None
        return matcher

    def token(self, text: str) -> int:
        """Return the id of a special token."""
        ident = self.tokenizer.special(text)
        assert ident is not None
        return ident

    def text(self, tokens: list[int]) -> str:
        """Return the text of tokens, without the end-of-turn token."""
        raw = b"".join(self.tokenizer.token_bytes[token] for token in tokens if token != self.token(END))
        return raw.decode(errors="replace")

    def walk(
        self,
        constraint: Constraint | Matcher,
        seed: int = 0,
        limit: int = 4_000,
        eager: dict[str, float] | None = None,
    ) -> Written:
        """Pick random allowed tokens until the grammar ends.

        Args:
            eager: Special tokens with the probability that each is picked wherever it is allowed.
        """
        matcher = constraint if isinstance(constraint, Matcher) else self.matcher(constraint)
        chance, tokens = random.Random(seed), list[int]()
        end = self.token(END)
        while len(tokens) < limit:
            if matcher.is_terminated:
                return Written(self.text(tokens), tokens, True)
            token = self._pick(matcher, chance, eager or {})
            matcher.accept_token(token)
            if token == end:
                return Written(self.text(tokens), tokens, True)
            tokens.append(token)
        return Written(self.text(tokens), tokens, False)

    def _pick(self, matcher: Matcher, chance: random.Random, eager: dict[str, float]) -> int:
        mask = matcher.mask()
        for text, likelihood in eager.items():
            token = self.token(text)
            if (mask is None or mask.allows(token)) and chance.random() < likelihood:
                return token
        if mask is None:
            return chance.randrange(self.tokenizer.size)
        return int(chance.choice(mask.tokens()))


def accepted_prefix(matcher: Matcher, tokens: Sequence[int]) -> int:
    """Return the number of leading tokens that the matcher accepts without a stop token."""
    ahead = matcher.clone()
    for accepted, token in enumerate(tokens):
        mask = ahead.mask()
        if ahead.is_stop_token(token) or (mask is not None and not mask.allows(token)):
            return accepted
        ahead.accept_token(token)
    return len(tokens)


def validate(schema: Any, text: str) -> None:
    """Raise unless the text is JSON that satisfies the schema, with numbers compared as decimals."""
    from jsonschema import Draft202012Validator

    exact = json.loads(json.dumps(schema), parse_float=Decimal)
    Draft202012Validator(exact).validate(json.loads(text, parse_float=Decimal))


_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_PART = r"(?:\d+Y(?:\d+M(?:\d+D)?)?|\d+M(?:\d+D)?|\d+D)"
_CLOCK = r"T(?:\d+H(?:\d+M(?:\d+S)?)?|\d+M(?:\d+S)?|\d+S)"


def _moment(text: str) -> object:
    return datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text.upper()))


def _matches(pattern: str) -> Callable[[str], object]:
    def check(text: str) -> object:
        if not re.fullmatch(pattern, text):
            raise ValueError(text)
        return text

    return check


def _uri(text: str) -> object:
    if not urlsplit(text).scheme or re.search(r"[\s<>\"{}|\\^`]", text):
        raise ValueError(text)
    return text


FORMAT_CHECKS: dict[str, Callable[[str], object]] = {
    "date": date.fromisoformat,
    "date-time": _moment,
    "time": lambda text: _moment(f"2024-01-01T{text}"),
    "duration": _matches(rf"P(?:{_PART}(?:{_CLOCK})?|{_CLOCK}|\d+W)"),
    "email": _matches(r"[^@\s\"]+@[^@\s]+"),
    "hostname": _matches(rf"(?=.{{1,253}}$){_LABEL}(?:\.{_LABEL})*"),
    "ipv4": IPv4Address,
    "ipv6": IPv6Address,
    "uri": _uri,
    "uuid": UUID,
}
"""Functions by `format` that raise ValueError for a text of another format."""

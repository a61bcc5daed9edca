"""Parts of a Lark grammar that determine the cost of its compilation, and a probe of its terminals."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import numpy as np

from greenroom.engine.grammar import limits
from greenroom.engine.grammar.c_interface import GrammarMatcher
from greenroom.engine.grammar.grammar_tokenizer import END, single_bytes
from greenroom.engine.grammar.patterns import count_classes
from greenroom.schemas.problems import invalid

TOKEN = re.compile(
    r"""(?P<skip>\s+|(?:\#|//)[^\n]*)
    |(?P<string>"(?:\\.|[^"\\\n])*"i?)
    |(?P<regex>/(?:\\.|[^/\\])+/[imslux]*)
    |(?P<directive>%[a-z]+)
    |(?P<name>[!?]?(?:[_?]?[a-z][_a-z0-9-]*|_?[A-Z][_A-Z0-9-]*))
    |(?P<special><[^<>\s]+>|@[a-zA-Z0-9_-]+)
    |(?P<repeat>~\s*(?=[+-]?[0-9]))
    |(?P<other>::|.)""",
    re.VERBOSE | re.DOTALL,
)
"""Tokens of llguidance's lexer (`lark/lexer.rs`), as far as needed to tell names from other text."""

LINE = re.compile(r"[^\n]*")
_SPACE = re.compile(r"\s*")
IGNORED = "%ignore"  # Key of ignored tokens among the definitions


@attrs.define
class Definition:
    """A rule or a terminal.

    Args:
        references: Names in its body, each with the number of brackets around it.
        attributes: Names between its own name and the colon, each with the number of brackets around it.
        combines: True if it intersects (`&`) or negates (`~`).
    """

    start: int
    end: int = 0
    references: list[tuple[str, int]] = attrs.field(factory=list)
    attributes: list[tuple[str, int]] = attrs.field(factory=list)
    combines: bool = False
    branches: int = 1


@attrs.define
class GrammarSummary:
    """The parts of a grammar.

    Args:
        schemas: Embedded JSON Schemas (`%json`); None for invalid JSON.
        intersections: Number of intersections (`&`).
        unclosed: Position of a string or regular expression without an end, where the summary ends; -1 if
            all have one.
        embeds: True if it embeds another grammar (`%lark`).
    """

    definitions: dict[str, Definition] = attrs.field(factory=dict)
    imports: list[str] = attrs.field(factory=list)
    expressions: list[str] = attrs.field(factory=list)
    schemas: list[Any] = attrs.field(factory=list)
    intersections: int = 0
    unclosed: int = -1
    embeds: bool = False

    @property
    def combining(self) -> list[str]:
        """Names of the definitions that intersect or negate."""
        return [name for name, definition in self.definitions.items() if definition.combines]


def unused_name(stem: str, grammar: str) -> str:
    """Return a name that begins with a stem, and with which no name in a grammar begins."""
    if stem not in grammar:
        return stem
    taken = {*re.findall(rf"{stem}-([0-9]+)-", grammar)}
    return next(f"{stem}-{number}-" for number in range(len(taken) + 1) if str(number) not in taken)


def summarize_grammar(grammar: str) -> GrammarSummary:
    return _Reader(grammar).read()


class _Reader:
    def __init__(self, grammar: str) -> None:
        self._grammar = grammar
        self._summary = GrammarSummary()
        self._current = Definition(0)
        self._brackets = 0
        self._head: tuple[str, int, int] | None = None
        """Name that a colon would define, its position, and the number of references before it."""

    def read(self) -> GrammarSummary:
        for kind, text, start, end in self._tokens():
            match kind:
                case "name":
                    self._name(text.lstrip("!?"), start)
                case "regex":
                    self._summary.expressions.append(text)
                    self._current.branches *= count_classes(text) + text.count(".") + text.count("\\")
                case "directive":
                    self._directive(text, start, end)
                case "other":
                    self._other(text)
        self._current.end = len(self._grammar)
        return self._summary

    def _tokens(self) -> Iterator[tuple[str, str, int, int]]:
        at = 0
        while at < len(self._grammar):
            found = TOKEN.match(self._grammar, at)
            assert found is not None
            at = found.end()
            if found.lastgroup == "skip":
                continue
            if found.group() in ('"', "/"):  # Each of many would be searched for its end.
                self._summary.unclosed = found.start()
                return
            yield str(found.lastgroup), found.group(), found.start(), at
            if found.group() in ("%json", "%llguidance", "%regex"):
                at = self._json(at)[1]

    def _json(self, at: int) -> tuple[Any, int]:
        space = _SPACE.match(self._grammar, at)
        begin = at if space is None else space.end()
        try:
            return json.JSONDecoder().raw_decode(self._grammar, begin)
        except (ValueError, RecursionError):
            return None, at

    def _name(self, name: str, start: int) -> None:
        if not self._brackets:
            self._head = (name, start, len(self._current.references))
        self._current.references.append((name, self._brackets))

    def _directive(self, text: str, start: int, end: int) -> None:
        if text == "%json":
            self._summary.schemas.append(self._json(end)[0])
        elif text == "%lark":
            self._summary.embeds = True
        elif text == "%ignore":
            self._define(IGNORED, start, Definition(start))
        elif text == "%import":
            line = LINE.match(self._grammar, start)
            self._summary.imports += [line.group()] if line else []
            self._define(text, start, Definition(start))

    def _other(self, text: str) -> None:
        if text in "([":
            self._brackets += 1
        elif text in ")]":
            self._brackets = max(0, self._brackets - 1)
        elif text in "&~":
            self._current.combines = True
            self._summary.intersections += text == "&"
        elif text == ":" and self._head is not None:
            name, start, before = self._head
            definition = Definition(start, attributes=self._current.references[before + 1 :])
            del self._current.references[before:]
            self._define(name, start, definition)

    def _define(self, name: str, start: int, definition: Definition) -> None:
        self._current.end = start
        self._current = self._summary.definitions.setdefault(name, definition)
        self._head = None


# Bounded check whether intersected terminals compile.
#
# llguidance computes the first byte of each terminal without a limit, and under an intersection or a
# negation that may take forever (100 characters are enough). With a fixed byte in front, it processes the
# same terminals under its limits.

_PREFIX = "\\u0001"


def probe_terminals(definitions: str, names: Sequence[str], param: str) -> None:
    """Refuse terminals that cannot be compiled within llguidance's limits. Raises ProblemError: 400 that
    names the field.
    """
    prefix = unused_name("PROBE", definitions)
    probes = [f'{prefix}-{index}: "{_PREFIX}" ({name})' for index, name in enumerate(names)]
    start = "start: " + " | ".join(f"{prefix}-{index}" for index in range(len(names)))
    lark = "\n".join([definitions, *probes, start, ""])
    grammar = json.dumps({"grammars": [{"lark_grammar": lark}]})
    allowed = limits.parser_limits(limits.GRAMMAR_FUEL)
    matcher = GrammarMatcher.compile(single_bytes(), grammar, allowed)
    if not matcher.is_error() and matcher.consume_token(1):
        matcher.compute_mask(np.zeros(-(-(END + 1) // 32), np.uint32))
    # Terminals that match nothing are harmless here; the real compilation refuses them.
    error = matcher.get_error()
    if error and not error.startswith("NoExtensionBias"):
        detail = (
            f"The expressions that '&' or '~' combines cannot be compiled: {error.split(chr(10))[0][:300]}"
        )
        raise invalid(detail, param, "unsupported_grammar")

"""Constraints as llguidance grammars: one Lark grammar that refers to the others by name."""

from __future__ import annotations

import json
from typing import Any

from greenroom.engine.grammar.cost import limits
from greenroom.engine.grammar.json_schema.check import check_schema
from greenroom.engine.grammar.json_schema.patterns import portable_pattern
from greenroom.engine.grammar.lark.check import check_lark
from greenroom.engine.grammar.vocabulary.grammar_tokenizer import GrammarTokenizer
from greenroom.schemas.problems import invalid
from greenroom.schemas.response_format import (
    ChoiceFormat,
    JsonObjectFormat,
    JsonSchemaFormat,
    LarkFormat,
    RegexFormat,
    ResponseFormat,
)

JSON_WHITESPACE = r"( |\n[ \t]{0,20})"
"""What may stand between two parts of a JSON text: compact, one space, or a new indented line. Bounded,
because models that may write white space without end do so (the rule is llama.cpp's)."""

SPACE = r"/[ \n\r\t]{1,4}/?"
"""White space before an answer or a call, as templates and models leave it."""


class GrammarBuilder:
    """Collects the rules and the named parts of one grammar.

    Args:
        tokenizer: Decides whether a marker is one special token or text.
    """

    def __init__(self, tokenizer: GrammarTokenizer) -> None:
        self.tokenizer = tokenizer
        self.lexer_fuel = limits.SCHEMA_FUEL
        self._parts: list[dict[str, Any]] = []
        self._rules: list[str] = []

    def rule(self, body: str, options: str = "") -> str:
        """Add a rule and return its name."""
        name = f"r{len(self._rules)}"
        self._rules.append(f"{name}{options}: {body}")
        return name

    def terminal(self, body: str) -> str:
        """Add a terminal and return its name."""
        name = f"T{len(self._rules)}"
        self._rules.append(f"{name}: {body}")
        return name

    def json(self, schema: Any) -> str:
        """Return a reference to JSON that validates against a checked schema."""
        return self._part({"json_schema": _with_options(schema)})

    def lark(self, grammar: str) -> str:
        """Return a reference to a whole Lark grammar, which a client wrote."""
        self.lexer_fuel = limits.GRAMMAR_FUEL
        return self._part({"lark_grammar": grammar})

    def part_of_text(self, grammar: str) -> str:
        """Return a reference to a Lark grammar that a client wrote for a text inside a call."""
        return self._part({"lark_grammar": grammar})

    def fixed_text(self, text: str) -> str:
        """Return fixed text as this model's tokens write it, special tokens where it holds any."""
        pieces = self.tokenizer.split_specials(text)
        return " ".join(literal(piece) if isinstance(piece, str) else f"<[{piece}]>" for piece in pieces)

    def build(self, start: str) -> str:
        """Return the finished grammar, for `GrammarMatcher`."""
        # Where the grammar leaves no choice, llguidance would force what the tokenizer makes of the text:
        # a special token for text that only looks like one, which the grammar then refuses.
        lark = "\n".join(['%llguidance {"no_forcing": true}', f"start: {start}", *self._rules])
        return json.dumps({"grammars": [{"name": "main", "lark_grammar": lark}, *self._parts]})

    def _part(self, part: dict[str, Any]) -> str:
        name = f"part{len(self._parts)}"
        self._parts.append({"name": name, **part})
        return f"@{name}"


def literal(text: str) -> str:
    """Return a Lark string."""
    return json.dumps(text, ensure_ascii=False)


def _with_options(schema: Any) -> dict[str, Any]:
    options = {
        "whitespace_flexible": True,
        "whitespace_pattern": JSON_WHITESPACE,
        # Without `\u`: what can be written in two ways lets a key dodge the schema that names it.
        "json_allowed_escapes": 'nrbtf\\"',
    }
    return {**(schema if isinstance(schema, dict) else _as_object(schema)), "x-guidance": options}


def _as_object(schema: bool) -> dict[str, Any]:
    return {} if schema else {"anyOf": [False]}


def response_format_rule(text: GrammarBuilder, response_format: ResponseFormat) -> str:
    """Return the expression that the visible answer has to match.

    Raises:
        ProblemError: 400 that names what cannot be honoured.
    """
    match response_format:
        case JsonObjectFormat():
            return f"{SPACE} {text.json({'type': 'object'})}"
        case JsonSchemaFormat(schema):
            checked = check_schema(schema, response_format.param)
            return f"{SPACE} {text.json(checked)}"
        case RegexFormat(pattern):
            return text.terminal(f"/{anchored_pattern(pattern, response_format.param)}/")
        case ChoiceFormat(choices):
            if sum(map(len, choices)) > limits.MAX_GRAMMAR:
                detail = f"All choices together may have {limits.MAX_GRAMMAR:,} characters"
                raise invalid(detail, response_format.param)
            if not choices or not all(choices):
                raise invalid("At least one choice is needed, and none may be empty", response_format.param)
            return text.terminal(" | ".join(literal(choice) for choice in choices))
        case LarkFormat(grammar):
            check_lark(grammar, response_format.param)
            return text.lark(grammar)


def anchored_pattern(pattern: str, param: str) -> str:
    """Return a pattern that matches a whole text; anchors at its ends are taken for granted."""
    return f"(?:{portable_pattern(without_anchors(pattern), param)})"


def without_anchors(pattern: str) -> str:
    """Return a pattern without the anchors at its ends."""
    inner = pattern.removeprefix("^")
    if inner.endswith("$") and (len(inner) - len(inner[:-1].rstrip("\\"))) % 2:
        inner = inner[:-1]
    return inner

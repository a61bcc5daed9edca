"""Construction of llguidance grammars: one Lark grammar that refers to others by name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from greenroom.engine.grammar import limits
from greenroom.engine.grammar.patterns import portable_pattern
from greenroom.engine.grammar.schema_check import check_schema
from greenroom.schemas.messages.requests import (
    ChoiceFormat,
    JsonObjectFormat,
    JsonSchemaFormat,
    LarkFormat,
    RegexFormat,
    ResponseFormat,
)
from greenroom.schemas.problems import invalid

if TYPE_CHECKING:
    from greenroom.engine.grammar.grammar_tokenizer import GrammarTokenizer

JSON_WHITESPACE = r"( |\n[ \t]{0,20})"
"""White space between two parts of a JSON text: none, one space, or a new indented line.

It is bounded because models that may write white space endlessly do so (llama.cpp's rule).
"""


class GrammarBuilder:
    """Collects the rules and the named parts of one grammar. `tokenizer`: tokenizer that decides whether a
    marker is one special token or text.
    """

    def __init__(self, tokenizer: GrammarTokenizer) -> None:
        self.tokenizer = tokenizer
        self.lexer_fuel = limits.SCHEMA_FUEL
        self._parts: list[str] = []
        self._left = limits.MAX_GRAMMAR_TEXT
        self._rules: list[str] = []

    def rule(self, body: str, options: str = "") -> str:
        name = f"r{len(self._rules)}"
        self._rules.append(f"{name}{options}: {body}")
        return name

    def terminal(self, body: str) -> str:
        name = f"T{len(self._rules)}"
        self._rules.append(f"{name}: {body}")
        return name

    def json(self, schema: Any) -> str:
        return self._part("json_schema", _with_options(schema))

    def lark(self, grammar: str) -> str:
        self.lexer_fuel = limits.GRAMMAR_FUEL
        return self._part("lark_grammar", grammar)

    def part_of_text(self, grammar: str) -> str:
        return self._part("lark_grammar", grammar)

    def fixed_text(self, text: str) -> str:
        pieces = self.tokenizer.split_specials(text)
        return " ".join(literal(piece) if isinstance(piece, str) else f"<[{piece}]>" for piece in pieces)

    def build(self, start: str) -> str:
        # If the grammar leaves no choice, llguidance would force the tokenizer's tokens for the text: a
        # special token for text that only looks like one, which the grammar then rejects.
        lark = "\n".join(['%llguidance {"no_forcing": true}', f"start: {start}", *self._rules])
        parts = [json.dumps({"name": "main", "lark_grammar": lark}), *self._parts]
        return f'{{"grammars": [{", ".join(parts)}]}}'

    def _part(self, kind: str, content: Any) -> str:
        name = f"part{len(self._parts)}"
        self._parts.append(json.dumps({"name": name, kind: content}))
        self._left -= len(self._parts[-1])
        if self._left < 0:
            detail = "The arguments refer to too large definitions: in this model's format, each has its own."
            raise invalid(detail, "tools", "unsupported_grammar")
        return f"@{name}"


def _with_options(schema: Any) -> dict[str, Any]:
    options = {
        "whitespace_flexible": True,
        "whitespace_pattern": JSON_WHITESPACE,
        # Excludes `\u`: two spellings of a key would let it evade the schema that names it.
        "json_allowed_escapes": 'nrbtf\\"',
    }
    return {**(schema if isinstance(schema, dict) else _as_object(schema)), "x-guidance": options}


def _as_object(schema: bool) -> dict[str, Any]:
    return {} if schema else {"anyOf": [False]}


def response_format_rule(text: GrammarBuilder, response_format: ResponseFormat) -> str:
    """Return the expression that the visible answer must match. Raises ProblemError: 400 that names the part
    that cannot be enforced.
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
                detail = f"All choices together may have at most {limits.MAX_GRAMMAR:,} characters"
                raise invalid(detail, response_format.param)
            if not choices or not all(choices):
                raise invalid("At least one choice is needed, and none may be empty", response_format.param)
            return text.terminal(" | ".join(literal(choice) for choice in choices))
        case LarkFormat(grammar):
            from greenroom.engine.grammar.lark_check import check_lark

            check_lark(grammar, response_format.param)
            return text.lark(grammar)


def anchored_pattern(pattern: str, param: str) -> str:
    """Return a pattern that matches a whole text, with or without anchors at its ends."""
    return f"(?:{portable_pattern(without_anchors(pattern), param)})"


def without_anchors(pattern: str) -> str:
    inner = pattern.removeprefix("^")
    if inner.endswith("$") and (len(inner) - len(inner[:-1].rstrip("\\"))) % 2:
        inner = inner[:-1]
    return inner


SPACE = r"/[ \n\r\t]{1,4}/?"  # White space before an answer or a call, as templates and models write it


def literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)

"""Checks of a client's Lark grammar before llguidance compiles it natively and uninterruptibly."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable

from greenroom.engine.grammar import limits
from greenroom.engine.grammar.c_interface import GrammarMatcher
from greenroom.engine.grammar.grammar_summary import (
    IGNORED,
    GrammarSummary,
    probe_terminals,
    summarize_grammar,
)
from greenroom.engine.grammar.grammar_tokenizer import single_bytes
from greenroom.engine.grammar.limits import ConstraintBudget
from greenroom.engine.grammar.patterns import steps_to_parse
from greenroom.engine.grammar.schema_check import check_schema
from greenroom.engine.grammar.schema_nodes import PathTooLongError, references_in_order
from greenroom.schemas.problems import ProblemError, invalid


def check_lark(grammar: str, param: str) -> None:
    """Refuse a grammar that takes too much time, memory or stack to compile.

    Raises:
        ProblemError: 400 that names the field: the grammar is too large, refers through too many levels,
            intersects too much, or embeds a schema that cannot be enforced.
    """
    if len(grammar) > limits.MAX_GRAMMAR:
        raise invalid(
            f"A grammar may have at most {limits.MAX_GRAMMAR:,} characters", param, "grammar_too_large"
        )
    summary = summarize_grammar(grammar)
    if summary.unclosed >= 0:
        line = grammar.count("\n", 0, summary.unclosed) + 1
        raise _unsupported(f"A string or a regular expression that begins in line {line} has no end", param)
    if any(len(expression) > limits.MAX_PATTERN for expression in summary.expressions):
        detail = f"A regular expression may have at most {limits.MAX_PATTERN:,} characters"
        raise invalid(detail, param, "grammar_too_large")
    _check_paths(summary, param)
    budget = ConstraintBudget()
    budget.spend("steps of work", sum(map(steps_to_parse, summary.expressions)), param)
    for schema in summary.schemas:
        check_schema(schema, param, budget=budget)
    if summary.combining:
        _check_combinations(summary, param)
        probe_terminals(_terminals(grammar, summary), _terminal_names(summary), param)


def check_compiles(grammar: str, param: str) -> None:
    """Refuse a grammar that llguidance cannot compile on its own or within its limits. Raises ProblemError:
    400 that names the field.
    """
    wrapped = json.dumps({"grammars": [{"lark_grammar": grammar}]})
    matcher = GrammarMatcher.compile(single_bytes(), wrapped, limits.parser_limits(limits.GRAMMAR_FUEL))
    if matcher.is_error():
        detail = f"The grammar cannot be compiled: {matcher.get_error().split(chr(10))[0][:300]}"
        raise _unsupported(detail, param)


def _check_paths(summary: GrammarSummary, param: str) -> None:
    too_long = invalid(
        f"The rules of a grammar may refer to one another through at most {limits.MAX_PATH} levels",
        param,
        "grammar_too_large",
    )
    # Embedded grammars have their own names, which this check does not distinguish.
    if summary.embeds and len(summary.definitions) > limits.MAX_PATH:
        raise too_long

    probed = _terminal_names(summary) if summary.combining else []
    try:
        references_in_order(_ahead([IGNORED, "start", *probed]), _references(summary))
    except PathTooLongError:
        raise too_long from None


def _check_combinations(summary: GrammarSummary, param: str) -> None:
    rules = [name for name in summary.combining if not _is_terminal(name)]
    if summary.embeds or rules:
        where = "beside an embedded grammar (%lark)" if summary.embeds else f"in the rule '{rules[0]}'"
        raise _unsupported(f"'&' and '~' cannot be honoured {where}, only in terminals (T: A & ~B)", param)
    combined = {*summary.combining, *references_in_order(_ahead(summary.combining), _references(summary))}
    branches = math.prod(summary.definitions[name].branches for name in combined & summary.definitions.keys())
    if summary.intersections >= limits.MAX_INTERSECTED or branches > limits.MAX_BRANCHES:
        raise _unsupported(
            f"A grammar may intersect at most {limits.MAX_INTERSECTED} expressions, with "
            f"{limits.MAX_BRANCHES:,} combinations of the classes in them",
            param,
        )


def _references(summary: GrammarSummary) -> Callable[[str], list[tuple[str, int]]]:
    def references_of(name: str) -> list[tuple[str, int]]:
        definition = summary.definitions.get(name)
        return [] if definition is None else [*definition.references, *definition.attributes]

    return references_of


def _ahead(names: Iterable[str]) -> list[tuple[str, int]]:
    return [(name, 0) for name in names]


def _unsupported(detail: str, param: str) -> ProblemError:
    return invalid(detail, param, "unsupported_grammar")


def _is_terminal(name: str) -> bool:
    return name.lstrip("_")[:1].isupper()


def _terminal_names(summary: GrammarSummary) -> list[str]:
    return [name for name in summary.definitions if _is_terminal(name)]


def _terminals(grammar: str, summary: GrammarSummary) -> str:
    definitions = [summary.definitions[name] for name in _terminal_names(summary)]
    return "\n".join([*summary.imports, *(grammar[part.start : part.end] for part in definitions)])

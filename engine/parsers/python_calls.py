"""Calls written as Python: `module.method(argument="value")`."""

from __future__ import annotations

import ast
import re
from typing import Any

from greenroom.engine.parsers.base import Malformed, ParsedCall
from greenroom.engine.parsers.json_calls import dump_json
from greenroom.engine.parsers.offered_tools import OfferedTools

# An escape that Python does not know is a backslash to it, with a warning.
_UNKNOWN_ESCAPE = re.compile(r"\\(\\|[\n'\"abfnrtvxuUN0-7])?")
_JSON_NAMES = {"true": True, "false": False, "null": None}


def parse_python_calls(body: str, offered: OfferedTools) -> list[ParsedCall]:
    """Return calls that stand one per line, separated by semicolons, or in a list. Nothing is evaluated.

    Raises:
        Malformed: There is no call, or anything else.
    """
    source = _UNKNOWN_ESCAPE.sub(lambda escape: escape.group() if escape.group(1) else r"\\", body)
    try:
        statements = ast.parse(source.strip()).body
        nodes = [node for statement in statements for node in _expressions(statement)]
        calls = [_call(node, offered) for node in nodes]
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        raise Malformed(f"not Python calls: {type(error).__name__}") from error
    if not calls:
        raise Malformed("the block is empty")
    return calls


def _expressions(statement: ast.stmt) -> list[ast.expr]:
    if not isinstance(statement, ast.Expr):
        raise Malformed("a statement is not a call")
    value = statement.value
    return value.elts if isinstance(value, ast.List | ast.Tuple) else [value]


def _call(node: ast.expr, offered: OfferedTools) -> ParsedCall:
    if not isinstance(node, ast.Call):
        raise Malformed("an expression is not a call")
    name = _name(node.func, offered)
    names = offered.argument_names(name)
    if len(node.args) > len(names):
        raise Malformed("an argument has no name")
    arguments = {key: _value(value) for key, value in zip(names, node.args, strict=False)}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise Malformed("an argument has no name")
        arguments[keyword.arg] = _value(keyword.value)
    return ParsedCall(name, dump_json(arguments))


def _name(function: ast.expr, offered: OfferedTools) -> str:
    """Return the offered tool that is meant: `module.method`, `module` for `module.call`, or `method`."""
    dotted = ast.unparse(function)
    module, _, method = dotted.rpartition(".")
    candidates = [dotted, *([module] if method == "call" else []), method]
    return next((name for name in candidates if offered.accepts(name)), dotted)


def _value(node: ast.expr) -> Any:
    return ast.literal_eval(_JsonNames().visit(node))


class _JsonNames(ast.NodeTransformer):
    """Models write JSON's literals among Python's."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in _JSON_NAMES:
            return node
        return ast.copy_location(ast.Constant(_JSON_NAMES[node.id]), node)

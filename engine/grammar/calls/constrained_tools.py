"""The tools of a constrained request, with the schemas enforced on their arguments."""

from __future__ import annotations

import re
from typing import Any

import attrs

from greenroom.engine.grammar.cost.budget import ConstraintBudget
from greenroom.engine.grammar.json_schema.check import check_schema
from greenroom.engine.grammar.json_schema.compile_errors import find_fault
from greenroom.engine.grammar.json_schema.references import rebased
from greenroom.engine.grammar.lark.check import check_compiles, check_lark
from greenroom.engine.grammar.lark.grammar_builder import anchored_pattern, without_anchors
from greenroom.engine.grammar.lark.json_grammars import TextGrammar, text_grammar
from greenroom.engine.parsers.markers import TOOL_NAME
from greenroom.schemas.messages.messages import JsonObject, Tool, ToolChoice
from greenroom.schemas.messages.text_tools import ARGUMENT
from greenroom.schemas.problems import ProblemError, invalid

ANY_OBJECT = {"type": "object"}


@attrs.frozen
class ConstrainedTool:
    """A tool that may be called.

    Args:
        param: Path of the tool's schema in the request.
        checked: Schema as returned by `check_schema`; any object if `enforced` is False.
        enforced: True if the arguments are held to the schema.
        strict: True if parts of the schema that cannot be enforced are errors.
        grammar: Grammar of the tool's only argument, a text, besides the schema.
        unheld: Paths of the schema's parts that are not enforced.
    """

    name: str
    param: str
    checked: Any = ANY_OBJECT
    enforced: bool = False
    strict: bool = False
    grammar: TextGrammar | None = None
    unheld: tuple[str, ...] = ()

    @property
    def plain_name(self) -> str:
        """The tool's name, for formats that write it outside JSON.

        Raises:
            ProblemError: 400 for a name that would break the format.
        """
        if not re.fullmatch(TOOL_NAME, self.name):
            raise invalid(f"'{self.name}' cannot be the name of a tool in this model's format", self.param)
        return self.name

    def refusal(self, what: str) -> ProblemError:
        detail = f"In this model's format of calls, {what} of the tool '{self.name}' cannot be honoured"
        return invalid(detail, self.param, "unsupported_schema")

    def schema(self, base: str) -> Any:
        """Return the schema of the arguments.

        Args:
            base: JSON pointer of its place in the larger schema.
        """
        return rebased(self.checked, base)


def constrained_tools(
    tools: tuple[Tool, ...], choice: ToolChoice, *, strict_only: bool = False
) -> tuple[ConstrainedTool, ...]:
    """Return the callable tools with the schemas enforced on their arguments.

    A strict tool's schema is enforced or refused; of others, all that can be enforced is. Strict tools come
    first, so that others cannot use up their budget.

    Args:
        choice: The request's choice of callable tools.
        strict_only: True if tools that are not strict accept any object.

    Raises:
        ProblemError: 400 for a strict tool whose schema cannot be enforced, or if no tool is callable.
    """
    may_be_called = set(map(id, choice.callable(tools)))
    budget = ConstraintBudget()
    chosen: dict[int, ConstrainedTool] = {}
    for index, tool in sorted(enumerate(tools), key=lambda item: not item[1].strict):
        param = tool.param or f"tools[{index}].function.parameters"
        if id(tool) not in may_be_called:
            continue
        if strict_only and not tool.strict:
            chosen[index] = ConstrainedTool(tool.name, param, unheld=(param,))
        else:
            chosen[index] = _constrained_tool(tool, param, budget)
    if not chosen:
        raise invalid(f"tool_choice names '{choice.name}', which is not among the tools", "tool_choice")
    return tuple(chosen[index] for index in sorted(chosen))


def _constrained_tool(tool: Tool, param: str, budget: ConstraintBudget) -> ConstrainedTool:
    if tool.input is not None and tool.input.syntax == "regex":
        return _tool_of_expression(tool, tool.input.definition, param, budget)
    if tool.input is not None and tool.input.syntax == "lark":
        return _tool_of_grammar(tool, tool.input.definition, param, budget)
    parameters = dict(tool.parameters)
    if parameters.setdefault("type", "object") != "object":
        if tool.strict:
            raise invalid(f"{param} must describe an object", param)
        return ConstrainedTool(tool.name, param, unheld=(param,))
    if _describes_nothing(parameters):
        parameters["additionalProperties"] = False
    if tool.strict:
        checked = check_schema(parameters, param, budget)
        return ConstrainedTool(tool.name, param, checked, enforced=True, strict=True)
    unheld = list[str]()
    try:
        checked = check_schema(parameters, param, budget, unheld)
    except ProblemError:
        return ConstrainedTool(tool.name, param, unheld=(param,))
    while fault := find_fault(checked, param):
        error, schema, word = fault
        if not word:
            return ConstrainedTool(tool.name, param, unheld=(param,))
        del schema[word]
        unheld.append(error.problem.param or param)
    return ConstrainedTool(tool.name, param, checked, enforced=True, unheld=tuple(dict.fromkeys(unheld)))


def _describes_nothing(parameters: JsonObject) -> bool:
    """Return whether a tool takes no arguments.

    JSON Schema allows any properties here, but OpenAI's reference says that such a function has none.
    """
    says_more = parameters.keys() - {"type", "properties", "required", "title", "description", "$schema"}
    return not (says_more or parameters.get("properties") or parameters.get("required"))


def _tool_of_grammar(tool: Tool, lark: str, param: str, budget: ConstraintBudget) -> ConstrainedTool:
    """Return a tool whose only argument must match a Lark grammar."""
    check_lark(lark, param)
    grammar = text_grammar(lark)
    for written in filter(None, (lark, grammar.escaped)):
        check_compiles(written, param)
    checked = check_schema(dict(tool.parameters), param, budget)
    return ConstrainedTool(tool.name, param, checked, enforced=True, strict=True, grammar=grammar)


def _tool_of_expression(tool: Tool, pattern: str, param: str, budget: ConstraintBudget) -> ConstrainedTool:
    """Return a tool whose only argument must match a regular expression."""
    anchored_pattern(pattern, param)
    schema = dict(tool.parameters)
    schema["properties"] = {ARGUMENT: {"type": "string", "pattern": f"^(?:{without_anchors(pattern)})$"}}
    try:
        checked = check_schema(schema, param, budget)
    except ProblemError as error:  # The client did not write this schema.
        raise ProblemError(attrs.evolve(error.problem, param=param)) from None
    return ConstrainedTool(tool.name, param, checked, enforced=True, strict=True)

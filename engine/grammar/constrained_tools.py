"""The tools of a constrained request, with the schemas enforced on their arguments."""

from __future__ import annotations

import json
import re
from itertools import islice
from typing import Any, Final

import attrs

from greenroom.engine.grammar.c_interface import grammar_error
from greenroom.engine.grammar.composition import subschemas
from greenroom.engine.grammar.grammar_builder import anchored_pattern, without_anchors
from greenroom.engine.grammar.grammar_tokenizer import single_bytes
from greenroom.engine.grammar.json_grammars import TextGrammar, text_grammar
from greenroom.engine.grammar.lark_check import check_compiles, check_lark
from greenroom.engine.grammar.limits import ConstraintBudget, parser_limits
from greenroom.engine.grammar.patterns import JsonPath
from greenroom.engine.grammar.schema_check import check_schema, rebased
from greenroom.engine.grammar.schema_keywords import refusal
from greenroom.engine.parsers.parser import TOOL_NAME
from greenroom.schemas.messages.messages import ARGUMENT, JsonObject, Tool, ToolChoice
from greenroom.schemas.problems import ProblemError, invalid

ANY_OBJECT = {"type": "object"}


@attrs.frozen
class ConstrainedTool:
    """A tool that may be called.

    Args:
        checked: Schema as returned by `check_schema`; any object if `enforced` is False.
        enforced: True if the arguments are held to the schema.
        strict: True if parts of the schema that cannot be enforced are errors.
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
        """The tool's name, for formats that write it outside JSON. Raises ProblemError: 400 for a name that
        would break the format.
        """
        if not re.fullmatch(TOOL_NAME, self.name):
            raise invalid(f"'{self.name}' cannot be the name of a tool in this model's format", self.param)
        return self.name

    def refusal(self, what: str) -> ProblemError:
        detail = f"In this model's format of calls, {what} of the tool '{self.name}' cannot be honoured"
        return invalid(detail, self.param, "unsupported_schema")

    def schema(self, base: str) -> Any:
        """Return the schema of the arguments. `base`: JSON pointer of its place in the larger schema."""
        return rebased(self.checked, base)


def constrained_tools(
    tools: tuple[Tool, ...], choice: ToolChoice, *, strict_only: bool = False
) -> tuple[ConstrainedTool, ...]:
    """Return the callable tools with the schemas enforced on their arguments.

    A strict tool's schema is enforced or refused; of others, all that can be enforced is. Strict tools come
    first, so that others cannot use up their budget.

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
        while fault := find_fault(checked, param, budget):
            error, schema, word = fault
            if not word:
                raise error
            del schema[word]
            unheld.append(error.problem.param or param)
    except ProblemError:
        return ConstrainedTool(tool.name, param, unheld=(param,))
    return ConstrainedTool(tool.name, param, checked, enforced=True, unheld=tuple(dict.fromkeys(unheld)))


def _describes_nothing(parameters: JsonObject) -> bool:
    """Return whether a tool takes no arguments.

    JSON Schema allows any properties here, but OpenAI's reference says that such a function has none.
    """
    says_more = parameters.keys() - {"type", "properties", "required", "title", "description", "$schema"}
    return not (says_more or parameters.get("properties") or parameters.get("required"))


def _tool_of_grammar(tool: Tool, lark: str, param: str, budget: ConstraintBudget) -> ConstrainedTool:
    check_lark(lark, param)
    grammar = text_grammar(lark)
    for written in filter(None, (lark, grammar.escaped)):
        check_compiles(written, param)
    checked = check_schema(dict(tool.parameters), param, budget)
    return ConstrainedTool(tool.name, param, checked, enforced=True, strict=True, grammar=grammar)


def _tool_of_expression(tool: Tool, pattern: str, param: str, budget: ConstraintBudget) -> ConstrainedTool:
    anchored_pattern(pattern, param)
    schema = dict(tool.parameters)
    schema["properties"] = {ARGUMENT: {"type": "string", "pattern": f"^(?:{without_anchors(pattern)})$"}}
    try:
        checked = check_schema(schema, param, budget)
    except ProblemError as error:  # The client did not write this schema.
        raise ProblemError(attrs.evolve(error.problem, param=param)) from None
    return ConstrainedTool(tool.name, param, checked, enforced=True, strict=True)


_MAX_TRIALS: Final = 100  # Limit on the subschemas that are compiled to find a fault's place
_CHARACTERS_OF_A_STEP: Final = 2_000  # Characters of a schema that are read in the time of one step


def find_fault(
    schema: Any, param: str, budget: ConstraintBudget
) -> tuple[ProblemError, dict[str, Any], str] | None:
    """Return the 400 for a checked schema that llguidance cannot compile; None if it can.

    Returns:
        Error that names the place, smallest subschema found to fail, and its keyword if that is known.

    Raises:
        ProblemError: 400 if the search takes too much work.
    """

    def error_of(part: Any) -> str:
        grammar = json.dumps({"grammars": [{"json_schema": part}]})
        budget.spend("steps of work", 1 + len(grammar) // _CHARACTERS_OF_A_STEP, param)
        return grammar_error(single_bytes(), grammar, parser_limits()).partition("\n")[0]

    found = error_of(schema)
    if not found:
        return None
    kind = _kind(found)
    holder, path, pieces = schema if isinstance(schema, dict) else {}, JsonPath(param), param
    definitions = {name: holder[name] for name in ("$defs", "definitions") if name in holder}
    for part, place in islice(subschemas(schema, path), 1, _MAX_TRIALS):
        if str(place).startswith(pieces) and _kind(error := error_of({**definitions, **part})) == kind:
            holder, path, pieces, found = part, place, str(place), error
    if "patternProperty" in kind:
        why = "has patterns that may match the same name: make them exclude one another"
        word = "patternProperties"
    elif kind.startswith("min/max"):
        why = "can be honoured only if all named properties are required, or if no others are allowed"
        word = "minProperties" if "minProperties" in holder else "maxProperties"
    elif kind.startswith("Unable to determine if regex"):
        why = "is too complex to be honoured beside the other keywords of its text"
        word = next((name for name in ("maxLength", "minLength", "pattern") if name in holder), "")
    elif "regex parse error" in found:
        why = "is no valid regular expression"
        word = next((name for name in ("pattern", "patternProperties") if name in holder), "")
    else:
        reason = found.partition(": ")[2] or found
        why = "can be satisfied by no value" if kind == "Unsatisfiable schema" else "cannot be honoured"
        why += "" if "Regex" in reason else f": {reason}"
        word = ""
    return refusal(path.key(word) if word else path, why, "unsupported_schema"), holder, word


def _kind(error: str) -> str:
    return error.partition(":")[0] if error.startswith("Unsatisfiable") else error

"""Grammars of tool calls, one per format that a parser in `greenroom.engine.parsers` reads."""

from __future__ import annotations

import re
from collections.abc import Callable

import attrs

from greenroom.engine.grammar.calls.block_bodies import (
    block_triggers,
    functionary_calls,
    headed_calls,
    json_block,
)
from greenroom.engine.grammar.calls.constrained_tools import ConstrainedTool, constrained_tools
from greenroom.engine.grammar.calls.gemma_calls import gemma_calls
from greenroom.engine.grammar.calls.json_call_bodies import (
    Body,
    alternatives,
    harmony,
    json_call,
    tagged_array,
    tagged_lines,
)
from greenroom.engine.grammar.calls.pythonic_calls import pythonic_block, pythonic_lines, pythonic_list
from greenroom.engine.grammar.calls.tagged_arguments import (
    TaggedArguments,
    glm_arguments,
    longcat_arguments,
    qwen_arguments,
    seed_arguments,
)
from greenroom.engine.grammar.calls.tagged_sections import (
    DSML_SECTIONS,
    HUNYUAN_V3_SECTIONS,
    KIMI_K3_SECTIONS,
    MINICPM5_CALLS,
    MINIMAX_M2_SECTIONS,
    MUSE_SECTIONS,
    STEP3_SECTIONS,
)
from greenroom.engine.grammar.lark.grammar_builder import SPACE, GrammarBuilder
from greenroom.engine.parsers.blocks.call_sections import HEADED_CALL_FORMATS
from greenroom.engine.parsers.formats.gemma import GEMMA_CALL_FORMATS
from greenroom.engine.parsers.formats.json_block import JSON_BLOCK_FORMATS
from greenroom.schemas.messages.response_format import CallConstraint
from greenroom.schemas.problems import invalid


@attrs.frozen
class CallFormat:
    """The grammar of a model family's tool calls.

    Args:
        triggers: Start markers of a call, each with the body behind it; a required call uses the first. An
            empty marker means that a call is a whole answer and starts at once.
        single_block: True if all calls of an answer follow one marker, with nothing after them.
        lead: Optional text before the marker at the start of an answer.
        plain: Terminal of an answer without calls, where no marker separates the two.
        behind_plain: Text between such an answer and the calls behind it; empty if none may follow.
    """

    triggers: tuple[tuple[str, Body], ...]
    single_block: bool = False
    lead: str = ""
    plain: str = ""
    behind_plain: str = ""


@attrs.frozen
class CallGrammar:
    """The tool calls that one request allows.

    Args:
        parallel: True if more than one call is allowed.
        required: True if at least one call is required.
    """

    _format: CallFormat
    _tools: tuple[ConstrainedTool, ...]
    _parallel: bool
    required: bool

    @property
    def triggers(self) -> tuple[str, ...]:
        """Start markers of a call."""
        return tuple(marker for marker, _ in self._format.triggers)

    @property
    def repeats(self) -> bool:
        """True if free text or another call may follow a call."""
        return self._parallel and not self._format.single_block

    @property
    def lazy(self) -> bool:
        """True if text is free up to the trigger, so that it needs no grammar."""
        return not self.required and all(self.triggers)

    def body_rules(self) -> list[Callable[[GrammarBuilder], str]]:
        """Return the rule behind each trigger, up to the end of the call."""
        return [
            lambda text, body=body: body(text, self._tools, self._parallel)  # type: ignore[misc]
            for _, body in self._format.triggers
        ]

    def answer_rule(self, text: GrammarBuilder) -> str:
        """Return the rule of an answer made of calls only, or without calls if none is required."""
        trigger, body = self._format.triggers[0]
        marker = text.fixed_text(trigger) if trigger else ""
        call = text.rule(f"{marker} {body(text, self._tools, self._parallel)}")
        calls = f"{call} ({SPACE} {call})*" if self.repeats else call
        if lead := self._format.lead:
            calls = f"({text.fixed_text(lead)})? {calls}"
        if self.required or trigger:
            return f"{SPACE} {calls}"
        plain = text.terminal(self._format.plain)
        behind = text.fixed_text(self._format.behind_plain) if self._format.behind_plain else ""
        return f"{SPACE} {calls} | {plain}" + (f" ({behind} {calls})?" if behind else "")


def call_grammar(constraint: CallConstraint, alone: bool, *, strict_only: bool = False) -> CallGrammar | None:
    """Return the grammar of the calls that a request allows; None if calls are unconstrained.

    Args:
        constraint: Constraint on the request's calls.
        alone: True if no other grammar constrains the answer.
        strict_only: True if tools that are not strict accept any object.

    Raises:
        ProblemError: 400 for a tool or a call format that no grammar can constrain.
    """
    choice = constraint.choice
    mode = choice.mode
    needed = mode in ("required", "named")
    strict = any(tool.strict for tool in constraint.tools)
    limited = needed or strict or not constraint.parallel or choice.allowed is not None or not alone
    if mode == "none" or not constraint.tools or not limited:
        return None
    call_format = CALL_FORMATS.get(constraint.call_format)
    if call_format is None:
        detail = (
            f"This model writes tool calls as '{constraint.call_format}', which cannot be constrained: "
            "use tool_choice 'auto' and tools that are not strict, and let calls be parallel."
        )
        demanded = "tool_choice" if needed or choice.allowed is not None else "tools"
        param = demanded if constraint.parallel else "parallel_tool_calls"
        raise invalid(detail, param, "unsupported_tool_format")
    tools = constrained_tools(constraint.tools, choice, strict_only=strict_only)
    return CallGrammar(call_format, tools, constraint.parallel, needed)


def _hermes(text: GrammarBuilder, tools: tuple[ConstrainedTool, ...], many: bool) -> str:
    return f"{SPACE} {json_call(text, tools, 'arguments')} {SPACE} {text.fixed_text('</tool_call>')}"


def _granite(text: GrammarBuilder, tools: tuple[ConstrainedTool, ...], many: bool) -> str:
    if many:
        return f"{SPACE} {json_call(text, tools, 'arguments', many=True)}"
    return f'{SPACE} "[" {json_call(text, tools, "arguments")} "]"'


def _llama_xml(text: GrammarBuilder, tools: tuple[ConstrainedTool, ...], many: bool) -> str:
    end = text.fixed_text("</function>")

    def written(tool: ConstrainedTool, json: str) -> str:
        return f"{text.fixed_text(tool.plain_name + '>')} {json} {end}"

    return alternatives(tools, written, text)


def _llama_python(text: GrammarBuilder, tools: tuple[ConstrainedTool, ...], many: bool) -> str:
    return f"{SPACE} {json_call(text, tools, 'parameters')}"


def _llama_json(text: GrammarBuilder, tools: tuple[ConstrainedTool, ...], many: bool) -> str:
    call = json_call(text, tools, "parameters")
    return f'{call} (";" {SPACE} {call})*' if many else call


def _glm4_xml(text: GrammarBuilder, tools: tuple[ConstrainedTool, ...], many: bool) -> str:
    def written(tool: ConstrainedTool, json: str) -> str:
        head = text.fixed_text(f"<name>{tool.plain_name}</name><arguments>")
        return f"{head} {json} {text.fixed_text('</arguments>')}"

    return f"{SPACE} {alternatives(tools, written, text)} {SPACE} {text.fixed_text('</tool_call>')}"


def _mistral(text: GrammarBuilder, tools: tuple[ConstrainedTool, ...], many: bool) -> str:
    arguments = text.tokenizer.special("[ARGS]")
    if arguments is None:
        return _granite(text, tools, many)

    def written(tool: ConstrainedTool, json: str) -> str:
        return f"{text.fixed_text(tool.plain_name)} <[{arguments}]> {json}"

    return alternatives(tools, written, text)


def _raw(arguments: TaggedArguments) -> Body:
    return lambda text, tools, many: arguments.calls(text, tools)


def _raw_function(arguments: TaggedArguments) -> Body:
    """Return Qwen's call without its outer tag, which these models often omit."""
    return lambda text, tools, many: arguments.functions(text, tools)


def _no_call(starts: str, *markers: str) -> str:
    """Return the terminal of text without markers that does not start with certain characters."""
    inside = "|".join(re.escape(marker) for marker in markers)
    return rf"/[ \n\r\t]*[^{re.escape(starts)} \n\r\t](?s:.*)/ & ~/(?s:.*)(?:{inside})(?s:.*)/"


def _single_trigger(trigger: str, body: Body, single_block: bool = False) -> CallFormat:
    return CallFormat(((trigger, body),), single_block)


CALL_FORMATS: dict[str, CallFormat] = {
    "hermes_json": _single_trigger("<tool_call>", _hermes),
    "granite_json": CallFormat((("<|tool_call|>", _granite), ("<tool_call>", _hermes)), single_block=True),
    "llama_xml": _single_trigger("<function=", _llama_xml),
    "llama_python": _single_trigger("<|python_tag|>", _llama_python, single_block=True),
    "llama_json": CallFormat((("", _llama_json),), single_block=True, plain=_no_call("{", "<|python_tag|>")),
    "glm4_xml": _single_trigger("<tool_call>", _glm4_xml),
    "glm4_native": _single_trigger("<tool_call>", _raw(glm_arguments)),
    "mistral": _single_trigger("[TOOL_CALLS]", _mistral),
    "qwen3_coder": CallFormat(
        (("<tool_call>", _raw(qwen_arguments)), ("<function=", _raw_function(qwen_arguments)))
    ),
    "harmony": CallFormat(
        (
            ("<|channel|>commentary to=functions.", harmony(behind_role=False)),
            ("<|channel|>analysis to=functions.", harmony(behind_role=False)),
            ("<|start|>assistant to=functions.", harmony(behind_role=True)),
        ),
        single_block=True,
        lead="<|start|>assistant",
    ),
    "bare_pythonic": CallFormat(
        (("", pythonic_list),),
        single_block=True,
        plain=_no_call("[{", "<|python_start|>", "<|python_tag|>"),
    ),
    "mlx_lm.pythonic": _single_trigger("<|tool_call_start|>", pythonic_block("<|tool_call_end|>")),
    "olmo3": _single_trigger("<function_calls>", pythonic_lines("</function_calls>")),
    "cohere2": _single_trigger(
        "<|START_ACTION|>", tagged_array("<|END_ACTION|>", "parameters", "tool_name", numbered=True)
    ),
    "command_r": CallFormat(
        tuple(
            (f"Action:{space}```json", tagged_array("```", "parameters", "tool_name"))
            for space in ("\n", " ", "")
        )
    ),
    "seed_oss": CallFormat(
        (("<seed:tool_call>", _raw(seed_arguments)), ("<function=", _raw_function(seed_arguments)))
    ),
    "apriel": _single_trigger("<tool_calls>", tagged_array("</tool_calls>")),
    "minimax_m1": _single_trigger("<tool_calls>", tagged_lines("</tool_calls>")),
    "xlam": CallFormat(
        (("", _granite),), single_block=True, plain=_no_call("[", "```json", "<tool_call>", "[TOOL_CALLS]")
    ),
    "functionary_v32": CallFormat(
        (("", functionary_calls),),
        single_block=True,
        plain=r"/all\n(?s:.*)/ & ~/(?s:.*)>>>(?s:.*)/",
        behind_plain=">>>",
    ),
    "hunyuan": _single_trigger("<tool_calls>", json_block("list", "arguments", "</tool_calls>")),
    "hunyuan_v3": CallFormat(HUNYUAN_V3_SECTIONS),
    "deepseek_dsml": CallFormat(DSML_SECTIONS),
    "step3": CallFormat(STEP3_SECTIONS),
    "mlx_lm.minimax_m2": CallFormat(MINIMAX_M2_SECTIONS),
    "mlx_lm.muse_spark": CallFormat(MUSE_SECTIONS),
    "mlx_lm.kimi_k3": CallFormat(KIMI_K3_SECTIONS),
    "mlx_lm.minicpm5": CallFormat(MINICPM5_CALLS),
    "mlx_lm.longcat": _single_trigger("<longcat_tool_call>", _raw(longcat_arguments)),
    **{known.parser_id: _single_trigger(known.start, gemma_calls(known)) for known in GEMMA_CALL_FORMATS},
    **{known.parser_id: _single_trigger(known.start, headed_calls(known)) for known in HEADED_CALL_FORMATS},
    **{known.parser_id: CallFormat(block_triggers(known)) for known in JSON_BLOCK_FORMATS},
}
"""Call formats that can be constrained, by parser id."""

"""The grammar of the tool calls that one request allows."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from greenroom.engine.grammar.call_syntax import CallSyntax
from greenroom.engine.grammar.constrained_tools import ConstrainedTool, constrained_tools
from greenroom.engine.grammar.grammar_builder import GrammarBuilder
from greenroom.engine.grammar.lark_text import SPACE
from greenroom.schemas.messages.requests import CallConstraint
from greenroom.schemas.problems import invalid

_MAX_NOTICE = 800
"""Limit on the characters of paths in a notice, which is sent as a header."""


@attrs.frozen
class CallGrammar:
    """The tool calls that one request allows.

    Args:
        parallel: True if more than one call is allowed.
        required: True if at least one call is required.
    """

    _syntax: CallSyntax
    _tools: tuple[ConstrainedTool, ...]
    _parallel: bool
    required: bool

    @property
    def triggers(self) -> tuple[str, ...]:
        """Start markers of a call."""
        return tuple(marker for marker, _ in self._syntax.triggers)

    @property
    def repeats(self) -> bool:
        """True if free text or another call may follow a call."""
        return self._parallel and not self._syntax.single_block

    @property
    def notice(self) -> str:
        """Sentence about the parts of schemas that are not enforced; empty if all are."""
        unheld = ", ".join(path for tool in self._tools for path in tool.unheld)
        return unheld and f"Calls are not held to these parts of schemas: {ascii(unheld)[1:-1][:_MAX_NOTICE]}"

    @property
    def lazy(self) -> bool:
        """True if text is free up to the trigger, so that it needs no grammar."""
        return not self.required and all(self.triggers)

    def body_rules(self) -> list[Callable[[GrammarBuilder], str]]:
        """Return the rule behind each trigger, up to the end of the call."""
        return [
            lambda text, body=body: body(text, self._tools, self._parallel)  # type: ignore[misc]
            for _, body in self._syntax.triggers
        ]

    def answer_rule(self, text: GrammarBuilder) -> str:
        """Return the rule of an answer made of calls only, or without calls if none is required."""
        trigger, body = self._syntax.triggers[0]
        marker = text.fixed_text(trigger) if trigger else ""
        call = text.rule(f"{marker} {body(text, self._tools, self._parallel)}")
        calls = f"{call} ({SPACE} {call})*" if self.repeats else call
        if lead := self._syntax.lead:
            calls = f"({text.fixed_text(lead)})? {calls}"
        if self.required or trigger:
            return f"{SPACE} {calls}"
        plain = text.terminal(self._syntax.plain)
        behind = text.fixed_text(self._syntax.behind_plain) if self._syntax.behind_plain else ""
        return f"{SPACE} {calls} | {plain}" + (f" ({behind} {calls})?" if behind else "")


def call_grammar(
    constraint: CallConstraint, syntaxes: Mapping[str, CallSyntax], alone: bool, *, strict_only: bool = False
) -> CallGrammar | None:
    """Return the grammar of the calls that a request allows; None if calls are unconstrained.

    Args:
        constraint: Constraint on the request's calls.
        syntaxes: Syntaxes of calls by parser id.
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
    syntax = syntaxes.get(constraint.call_format)
    if syntax is None:
        detail = (
            f"This model writes tool calls as '{constraint.call_format}', which cannot be constrained: "
            "use tool_choice 'auto' and tools that are not strict, and let calls be parallel."
        )
        demanded = "tool_choice" if needed or choice.allowed is not None else "tools"
        param = demanded if constraint.parallel else "parallel_tool_calls"
        raise invalid(detail, param, "unsupported_tool_format")
    tools = constrained_tools(constraint.tools, choice, strict_only=strict_only)
    return CallGrammar(syntax, tools, constraint.parallel, needed)

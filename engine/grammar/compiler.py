"""Compilation of constraints for one model's tokenizer, with that of tool calls."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import attrs
import numpy as np

from greenroom.engine.grammar.c_interface import GrammarMatcher
from greenroom.engine.grammar.call_syntax import CallSyntax
from greenroom.engine.grammar.constrained_tools import ConstrainedTool, constrained_tools, find_fault
from greenroom.engine.grammar.grammar_builder import SPACE, GrammarBuilder, response_format_rule
from greenroom.engine.grammar.grammar_tokenizer import GrammarTokenizer
from greenroom.engine.grammar.limits import ConstraintBudget, parser_limits
from greenroom.engine.grammar.masks import TokenMask
from greenroom.engine.grammar.matcher import Matcher
from greenroom.engine.grammar.matcher_state import CompiledConstraint, TriggerMatcher, error_of
from greenroom.engine.grammar.schema_check import check_schema
from greenroom.schemas.messages.requests import CallConstraint, Constraint, JsonSchemaFormat
from greenroom.schemas.problems import ProblemError, invalid

_MAX_LEADING_WHITESPACE = 8
"""Limit on the white space before an answer and between reasoning and answer, in characters."""


_MAX_KEY_CHARACTERS = 1_000_000
"""Size limit of a cached constraint: the characters of its strings plus the number of its other values."""


_TOO_LARGE = "unsupported_grammar"  # Error code of a grammar that llguidance rejects


class GrammarCompiler:
    """Compiles constraints into matchers. Used on one thread; its matchers may move to another."""

    def __init__(
        self,
        tokenizer: GrammarTokenizer,
        syntaxes: Mapping[str, CallSyntax] = MappingProxyType({}),
        cache: ConstraintCache | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._syntaxes = syntaxes
        self._cache = ConstraintCache() if cache is None else cache
        self._triggers: dict[tuple[tuple[str, ...], bool], TriggerMatcher] = {}

    def compile(self, constraint: Constraint) -> Matcher | None:
        """Return a matcher at the start of an answer; None if nothing is constrained. Raises ProblemError:
        400 that names the part of the request that cannot be enforced.
        """
        try:
            compiled = self._look_up(constraint)
        except RecursionError:
            requested = constraint.response_format
            param = requested.param if isinstance(requested, JsonSchemaFormat) else "tools"
            raise invalid("The schema, or a value in it, is nested too deep", param) from None
        return None if compiled.is_empty else Matcher(compiled)

    def _look_up(self, constraint: Constraint) -> CompiledConstraint:
        key = _key_of(constraint)
        if key is None:
            return self._compile(constraint)
        compiled = self._cache.get(key)
        if compiled is None:
            began = time.thread_time()
            compiled = self._compile(constraint)
            self._cache.put(key, compiled, time.thread_time() - began)
        return compiled

    def _compile(self, constraint: Constraint) -> CompiledConstraint:
        """Compile a constraint; if it is too large, without the schemas of tools that are not strict."""
        try:
            return self._compile_tools(constraint, strict_only=False)
        except ProblemError as error:
            tools = () if constraint.calls is None else constraint.calls.tools
            if error.problem.code != _TOO_LARGE:
                raise
            _find_place(constraint)
            if all(tool.strict for tool in tools):
                raise
        return self._compile_tools(constraint, strict_only=True)

    def _compile_tools(self, constraint: Constraint, strict_only: bool) -> CompiledConstraint:
        has_format, calls = constraint.response_format is not None, None
        if constraint.calls is not None:
            calls = call_grammar(
                constraint.calls, self._syntaxes, alone=not has_format, strict_only=strict_only
            )
        notice = "" if calls is None else calls.notice
        forced = calls is not None and calls.required and calls.repeats
        compiled = CompiledConstraint(
            self._tokenizer, constraint.reasoning, ends_repeats=forced, notice=notice
        )
        if calls is not None and calls.lazy and not has_format:
            bodies = tuple(self._prototype(body, "tools") for body in calls.body_rules())
            compiled = attrs.evolve(compiled, calls=bodies, repeats=calls.repeats)
            return self._add_triggers(compiled, calls.triggers)
        if calls is not None or has_format:
            compiled = self._add_answer(compiled, constraint, calls)
        return self._add_triggers(compiled, ())

    def _add_answer(
        self, compiled: CompiledConstraint, constraint: Constraint, calls: CallGrammar | None
    ) -> CompiledConstraint:
        """Add the grammar of a whole answer, which may follow reasoning."""

        def answer(text: GrammarBuilder) -> str:
            options = [] if calls is None else [calls.answer_rule(text)]
            if constraint.response_format is not None and (calls is None or not calls.required):
                starts = () if reasoning is None else reasoning.answer_starts
                before = " | ".join(map(text.fixed_text, starts))
                rule = text.rule(response_format_rule(text, constraint.response_format))
                options.append(f"({before})? {rule}" if starts else rule)
            return " | ".join(options)

        def opening(text: GrammarBuilder) -> str:
            assert reasoning is not None
            return f"{text.fixed_text(reasoning.start)} | {answer(text)}"

        def after_reasoning(text: GrammarBuilder) -> str:
            return f"{SPACE} ({text.rule(answer(text))})"

        reasoning = constraint.reasoning
        param = "tools" if constraint.response_format is None else constraint.response_format.param
        if reasoning is None:
            return attrs.evolve(compiled, answer=self._prototype(answer, param))
        first = None if reasoning.opened or reasoning.budget == 0 else self._prototype(opening, param)
        return attrs.evolve(compiled, answer=self._prototype(after_reasoning, param), opening=first)

    def _add_triggers(self, compiled: CompiledConstraint, triggers: tuple[str, ...]) -> CompiledConstraint:
        """Add the markers to search for in free text: the start of a call and the end of reasoning."""
        call_trigger = self._trigger(triggers, must_go_on=False) if triggers else None
        reasoning = compiled.reasoning
        if reasoning is None:
            return attrs.evolve(compiled, call_trigger=call_trigger)
        return attrs.evolve(
            compiled,
            call_trigger=call_trigger,
            reasoning_end=self._trigger((reasoning.end,), must_go_on=compiled.answer is not None),
            closing=self._tokenizer.encode(reasoning.forced_end or f"\n{reasoning.end}\n\n"),
        )

    def _trigger(self, markers: tuple[str, ...], *, must_go_on: bool) -> TriggerMatcher:
        key = (markers, must_go_on)
        if key not in self._triggers:
            forbidden = self._tokenizer.stop_token_ids if must_go_on else ()
            self._triggers[key] = TriggerMatcher(self._tokenizer, markers, forbidden)
        return self._triggers[key]

    def _prototype(self, rule: Callable[[GrammarBuilder], str], param: str) -> Any:
        """Return an llguidance matcher at its start, as a prototype that each answer copies."""
        text = GrammarBuilder(self._tokenizer)
        grammar = text.build(rule(text))
        allowed = parser_limits(text.lexer_fuel)
        matcher = GrammarMatcher.compile(self._tokenizer.trie, grammar, allowed)
        probe = matcher.deep_copy()
        if not probe.is_error():
            self._try_to_begin(probe)
        if probe.is_error():
            detail = f"The constraint cannot be compiled: {error_of(probe)}"
            raise invalid(detail, param, _TOO_LARGE)
        return matcher

    def _try_to_begin(self, probe: Any) -> None:
        """Compute the first mask, which shows whether anything satisfies the grammar.

        White space before the answer is skipped, since any grammar that allows it can start with it.
        """
        words = np.zeros(self._tokenizer.mask_words, np.uint32)
        for _ in range(_MAX_LEADING_WHITESPACE + 1):
            probe.compute_mask(words)
            allowed = TokenMask(words).tokens()
            if probe.is_error() or any(self._tokenizer.token_bytes[token].strip() for token in allowed):
                return
            probe.consume_token(int(allowed[0]))


def _find_place(constraint: Constraint) -> None:
    """Raise the 400 for the place in a schema that cannot be compiled, if one is found."""
    schemas = list[tuple[Any, str]]()
    if isinstance(constraint.response_format, JsonSchemaFormat):
        param = constraint.response_format.param
        schemas.append((check_schema(constraint.response_format.schema, param), param))
    if constraint.calls is not None:
        tools = constrained_tools(constraint.calls.tools, constraint.calls.choice, strict_only=True)
        schemas += [(tool.checked, tool.param) for tool in tools if tool.strict]
    for checked, param in schemas:
        if fault := find_fault(checked, param, ConstraintBudget()):
            raise fault[0]


def _key_of(constraint: Constraint) -> bytes | None:
    """Return a constraint's cache key; None if its `repr` would hold the GIL for long."""
    try:
        return hashlib.sha256(repr(constraint).encode()).digest() if _is_small(constraint) else None
    except RecursionError:
        return None


def _is_small(constraint: Constraint) -> bool:
    left, waiting = _MAX_KEY_CHARACTERS, deque[Any]([constraint])
    while waiting and left > 0:
        value = waiting.pop()
        left -= len(value) if isinstance(value, str) else 1
        if isinstance(value, dict):
            waiting.extend(value)
            waiting.extend(value.values())
        elif isinstance(value, list | tuple):
            waiting.extend(value)
        elif attrs.has(type(value)):
            waiting.extend(attrs.astuple(value, recurse=False))
    return left > 0


@attrs.define
class ConstraintCache:
    """An LRU cache of compiled constraints. `most_seconds`: limit on the entries' total compile time, in
    seconds. It stands for their size, which llguidance does not report; one second is about 80 MB.
    """

    most: int = 64
    most_seconds: float = 3.0
    _entries: OrderedDict[bytes, tuple[CompiledConstraint, float]] = attrs.field(
        factory=OrderedDict, init=False
    )
    _seconds: float = attrs.field(default=0.0, init=False)

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: bytes) -> CompiledConstraint | None:
        """Return the entry of a key and mark it as most recently used."""
        if key not in self._entries:
            return None
        self._entries.move_to_end(key)
        return self._entries[key][0]

    def put(self, key: bytes, compiled: CompiledConstraint, seconds: float) -> None:
        """Insert a constraint with its compile time in seconds; evict the least recently used ones."""
        self._entries[key] = (compiled, seconds)
        self._seconds += seconds
        while len(self._entries) > self.most or self._seconds > self.most_seconds:
            _, (_, evicted) = self._entries.popitem(last=False)
            self._seconds -= evicted


_MAX_NOTICE = 800  # Limit on the characters of paths in a notice, which is sent as a header


@attrs.frozen
class CallGrammar:
    """The tool calls that one request allows."""

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
        alone: True if no other grammar constrains the answer.
        strict_only: True if tools that are not strict accept any object.

    Raises:
        ProblemError: 400 for a tool or a call format that no grammar can constrain.
    """
    choice = constraint.choice
    mode = choice.mode
    needed = mode in ("required", "named")
    held = any(tool.strict for tool in constraint.tools) or all(tool.held for tool in constraint.tools)
    limited = needed or held or not constraint.parallel or choice.allowed is not None or not alone
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

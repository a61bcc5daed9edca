"""Constraints of requests, compiled for one model's tokenizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from greenroom.engine.formats.registry import CALL_SYNTAXES
from greenroom.engine.loading.libraries import import_grammar_library
from greenroom.engine.parsers.parser import ReasoningParser, ToolCallParser
from greenroom.engine.tokenizer.tokenizer import ChatTokenizer
from greenroom.schemas.logs import get_logger
from greenroom.schemas.messages.generation import GenerationParameters
from greenroom.schemas.messages.messages import ToolChoice
from greenroom.schemas.messages.requests import (
    CallConstraint,
    ChatInput,
    Constraint,
    InferenceRequest,
    RawInput,
    ReasoningConstraint,
)
from greenroom.schemas.problems import ProblemError, invalid

if TYPE_CHECKING:
    from greenroom.engine.grammar.compiler import GrammarCompiler
    from greenroom.engine.grammar.matcher import Matcher

log = get_logger(__name__)


class RequestConstraints:
    """Compiles the constraints of requests, on the thread that prepares prompts."""

    def __init__(
        self,
        tokenizer: ChatTokenizer,
        stop_token_ids: frozenset[int],
        tool_parser: ToolCallParser,
        reasoning_parser: ReasoningParser,
    ) -> None:
        self._tokenizer = tokenizer
        self._stop_token_ids = stop_token_ids
        self._tool_parser = tool_parser
        self._reasoning_parser = reasoning_parser
        self._compiler: GrammarCompiler | None = None

    def new_matcher(
        self,
        request: InferenceRequest,
        parameters: GenerationParameters,
        *,
        opens_reasoning: bool = False,
        may_reason: bool = True,
    ) -> Matcher | None:
        """Return a matcher of the request's constraints at the start of an answer; None if it has none.

        Args:
            opens_reasoning: True if the prompt ends inside reasoning.
            may_reason: True if the answer may begin with reasoning.

        Raises:
            ProblemError: 400 that names the constraint that cannot be enforced.
        """
        if isinstance(request.input, RawInput):
            constraint = Constraint(request.response_format, cache_salt=request.cache_salt)
        elif isinstance(request.input, ChatInput):
            may_reason = opens_reasoning or may_reason or parameters.thinking_budget is not None
            reasoning = self._reasoning_constraint(parameters, opens_reasoning) if may_reason else None
            constraint = self._chat_constraint(request, request.input, reasoning)
        else:
            return None
        reasoning = constraint.reasoning
        budget = None if reasoning is None else reasoning.budget
        if constraint.response_format is None and constraint.calls is None and budget is None:
            return None
        try:
            matcher = self._get_compiler().compile(constraint)
        except ProblemError as error:
            if constraint.calls is None or _demands(constraint.calls, request):
                raise
            _tell_unheld(request, error.problem.detail)
            rest = attrs.evolve(constraint, calls=None)
            matcher = None if budget is None else self._get_compiler().compile(rest)
        continued = isinstance(request.input, ChatInput) and request.input.continue_final_message
        if continued and not opens_reasoning and matcher is not None and matcher.constrains_answer:
            field = "continue_final_message"
            detail = f"`{field}` cannot be combined with a constraint on the whole answer: it has begun."
            raise invalid(detail, field, "unsupported_parameter")
        return matcher

    def _chat_constraint(
        self, request: InferenceRequest, chat: ChatInput, reasoning: ReasoningConstraint | None
    ) -> Constraint:
        calls = None
        _check_tool_choice(chat)
        if chat.tools and chat.tool_choice.mode != "none" and chat.tool_choice.allowed != ():
            choice, parallel = chat.tool_choice, chat.parallel_tool_calls
            calls = CallConstraint(chat.tools, choice, self._tool_parser.parser_id, parallel)
            if not (_demands(calls, request) or _can_hold(calls, request)):
                calls = None
        return Constraint(request.response_format, calls, reasoning, request.cache_salt)

    def _reasoning_constraint(
        self, parameters: GenerationParameters, opened: bool
    ) -> ReasoningConstraint | None:
        parser = self._reasoning_parser
        if not parser.markers:
            return None
        start, end = parser.markers[0]
        budget = parameters.thinking_budget
        return ReasoningConstraint(start, end, opened, budget, parser.forced_end, parser.answer_starts)

    def _get_compiler(self) -> GrammarCompiler:
        """Return the compiler, created at first use.

        Creating it holds the GIL, for about a second with a vocabulary of 150,000 tokens.
        """
        if self._compiler is None:
            import_grammar_library()
            from greenroom.engine.grammar.compiler import GrammarCompiler
            from greenroom.engine.grammar.grammar_tokenizer import GrammarTokenizer

            tokenizer = GrammarTokenizer(self._tokenizer.wrapped, self._stop_token_ids)
            self._compiler = GrammarCompiler(tokenizer, CALL_SYNTAXES)
        return self._compiler


def _demands(calls: CallConstraint, request: InferenceRequest) -> bool:
    """Return whether the client asks for what may need a grammar; building the grammar decides."""
    choice = calls.choice
    limited = choice.mode != "auto" or choice.allowed is not None or not calls.parallel
    return limited or request.response_format is not None or any(tool.strict for tool in calls.tools)


def _can_hold(calls: CallConstraint, request: InferenceRequest) -> bool:
    """Return whether all tools are to be held to their schemas, and the format marks where a call begins."""
    if not all(tool.held for tool in calls.tools):
        return False
    syntax = CALL_SYNTAXES.get(calls.call_format)
    if syntax is not None and all(marker for marker, _ in syntax.triggers):
        return True
    _tell_unheld(request, f"calls as '{calls.call_format}' have no grammar behind a marker")
    return False


def _tell_unheld(request: InferenceRequest, why: str) -> None:
    log.info("calls not held to schemas", request_id=request.id, reason=why)


def _check_tool_choice(chat: ChatInput) -> None:
    """Refuse a tool choice that no offered tool satisfies.

    Raises:
        ProblemError: 400 that names the problem.
    """
    choice: ToolChoice = chat.tool_choice
    names = {tool.name for tool in chat.tools}
    required = (choice.name,) if choice.mode == "named" else choice.allowed or ()
    for name in required:
        if name not in names:
            raise invalid(f"`tool_choice` names {name!r}, which is not among the tools.", "tool_choice")
    if choice.mode == "required" and not names:
        raise invalid("`tool_choice` is 'required', but there are no tools.", "tool_choice")

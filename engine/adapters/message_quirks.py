"""Forms of past turns for templates that need help: text beside calls, reasoning, ids, system messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Literal

import attrs

from greenroom.engine.adapters.message_normalization import join_paragraphs
from greenroom.engine.adapters.template_probe import TemplateMessage, TemplateTraits, shows_in_order
from greenroom.engine.parsers.parser import ReasoningParser, ToolCallParser
from greenroom.engine.tokenizer.control_tokens import TEXT_BESIDE_CALL
from greenroom.schemas.messages.messages import Message, TextPart, ToolCall
from greenroom.schemas.problems import ProblemError

Render = Callable[[Sequence[TemplateMessage]], str | None]

_FUNCTION_ID = "functions.zqtool:"
_REASONING_FIELDS = ("reasoning_content", "reasoning")
"""Field names of reasoning; transformers fills the first and `thinking` from either."""


@attrs.frozen
class MessageQuirks:
    """Quirks of a template beyond `TemplateTraits`, which depend on the model's parsers too.

    Args:
        text_beside_calls: True if it shows the text of every turn that calls tools.
        call_head: Template text that precedes the first tool call of a turn and follows assistant text; empty
            if the template shows such text itself or never.
        reasoning_form: Form of past reasoning: a field of its turn, a content part, or text between markers.
            Such text is limited to turns after the last user message, since the template cannot drop it
            later.
        call_ids: Form of call ids: any, or `functions.NAME:INDEX`, counted per conversation or per turn.
        system_with_result: True if a system message is shown although a tool result comes last.
        empty_answers: True if assistant turns may be empty.
        empty_beginning: True if the first message may be empty.
        late_results: True if a tool result is shown although another message follows its call.
    """

    text_beside_calls: bool = True
    call_head: str = ""
    text_frame: tuple[str, str] = ("", "")
    reasoning_form: Literal["field", "parts", "text"] = "field"
    reasoning_field: str = _REASONING_FIELDS[0]
    reasoning_markers: tuple[str, str] = ("", "")
    call_ids: Literal["any", "conversation", "turn"] = "any"
    system_with_result: bool = True
    empty_answers: bool = True
    empty_beginning: bool = True
    late_results: bool = True


PLAIN_FORMS = MessageQuirks()  # Forms of a template that takes every turn unchanged


def find_message_quirks(
    render: Render,
    source: str | None,
    traits: TemplateTraits,
    tool_parser: ToolCallParser,
    reasoning_parser: ReasoningParser,
) -> MessageQuirks:
    """Return the forms of past turns for a template, found by rendering small conversations."""
    said_nothing = render([_USER, {"role": "assistant", "content": ""}, _LAST])
    began_empty = render([{"role": "user", "content": ""}])
    forms = attrs.evolve(
        _find_reasoning(render, source, traits, reasoning_parser),
        empty_answers=said_nothing is not None,
        empty_beginning=began_empty is not None,
    )
    if not traits.tool_calls:
        return attrs.evolve(forms, text_beside_calls=traits.text_beside_calls)
    probe = _CallProbe(traits)
    rounds = [*probe.round("zqone", "zqbeside"), *probe.round("zqtwo", "zqmore")]
    beside = traits.text_beside_calls and shows_in_order(
        render([_USER, *rounds]), "zqbeside", "zqone", "zqmore", "zqtwo"
    )
    head, frame = ("", ("", "")) if beside else _find_call_head(render, probe, tool_parser)
    system = {"role": "system", "content": "zqsystem"}
    with_result = (
        not traits.system
        or not traits.tool_results
        or shows_in_order(render([system, _USER, *probe.round("zqone")]), "zqsystem")
    )
    call, result = probe.round("zqone")
    late_results = (
        not (traits.tool_results and traits.user_after_tool)  # Otherwise these are rendered as text.
        or shows_in_order(render([_USER, call, _LAST, result]), "zqresult")
    )
    return attrs.evolve(
        forms,
        text_beside_calls=beside,
        call_head=head,
        text_frame=frame,
        call_ids=_find_call_ids(render, probe),
        system_with_result=with_result,
        late_results=late_results,
    )


_USER: TemplateMessage = {"role": "user", "content": "zquser"}
_LAST: TemplateMessage = {"role": "user", "content": "zqlast"}


class _CallProbe:
    def __init__(self, traits: TemplateTraits) -> None:
        self._traits = traits

    def call(
        self, value: str, text: str = "", *, name: str = "zqtool", ident: str = "zqcall001"
    ) -> TemplateMessage:
        arguments: Any = {"zqkey": value}
        if self._traits.arguments_as_text:
            arguments = f'{{"zqkey": "{value}"}}'
        function = {"name": name, "arguments": arguments}
        content = None if self._traits.calls_without_content and not text else text
        calls = [{"id": ident, "type": "function", "function": function}]
        return {"role": "assistant", "content": content, "tool_calls": calls}

    def round(
        self, value: str, text: str = "", *, name: str = "zqtool", ident: str = "zqcall001"
    ) -> list[TemplateMessage]:
        result = {"role": "tool", "content": "zqresult", "tool_call_id": ident, "name": "zqresultof"}
        return [self.call(value, text, name=name, ident=ident), result]


def _find_call_head(render: Render, probe: _CallProbe, parser: ToolCallParser) -> tuple[str, tuple[str, str]]:
    """Return the template text before a call's name, and the frame of assistant text before that."""
    calls = render([_USER, *probe.round("zqone", name=f"{TEXT_BESIDE_CALL}zqtool")])
    answers = render([_USER, {"role": "assistant", "content": "zqbeside"}, _LAST])
    if (
        calls is None
        or answers is None
        or TEXT_BESIDE_CALL not in calls
        or not shows_in_order(answers, "zquser", "zqbeside")
    ):
        return "", ("", "")
    called = calls[calls.index("zquser") : calls.index(TEXT_BESIDE_CALL)]
    answered = answers[answers.index("zquser") : answers.index("zqbeside")]
    pairs = enumerate(zip(called, answered, strict=False))
    shared = next((at for at, (a, b) in pairs if a != b), min(len(called), len(answered)))
    head, lead = called[shared:], answered[shared:]
    if parser.preamble_frame is not None:
        return (head, parser.preamble_frame) if head else ("", ("", ""))
    marked = head.lstrip().startswith(tuple(start for start, _ in parser.markers if start))
    if not marked:
        return "", ("", "")
    return head, (lead, "\n" if re.match("<[a-z]", head) else "")


def _find_call_ids(render: Render, probe: _CallProbe) -> Literal["any", "conversation", "turn"]:
    other = probe.round("zqtwo", ident="zqcall002")
    shown = render([_USER, *probe.round("zqone"), *other]) or ""
    if _FUNCTION_ID + "0" in shown:
        return "conversation" if _FUNCTION_ID + "1" in shown else "turn"
    renamed = render([_USER, *probe.round("zqone", name="zqrenamed"), *other])
    return "conversation" if shown and renamed == shown else "any"


def _find_reasoning(
    render: Render, source: str | None, traits: TemplateTraits, parser: ReasoningParser
) -> MessageQuirks:
    if traits.tool_calls:
        turn, *behind = _CallProbe(traits).round("zqone")
    else:
        turn, *behind = {"role": "assistant", "content": "zqone"}, {"role": "tool", "content": "zqresult"}
        behind = behind if traits.tool_results else []

    def shown(**fields: Any) -> str:
        return render([_USER, {**turn, **fields}, *behind]) or ""

    for field in _REASONING_FIELDS:
        if "zqthought" in shown(**{field: "zqthought"}):
            return MessageQuirks(reasoning_field=field)
    start, end = parser.markers[0] if parser.markers else ("", "")
    if not start or (source is not None and end not in source):  # Nothing shows that the model reasons.
        return MessageQuirks()
    text = turn["content"] or ""
    parts = [
        {"type": "thinking", "thinking": "zqthought"},
        *([{"type": "text", "text": text}] if text else []),
    ]
    marked = rf"{re.escape(start)}\s*zqthought\s*{re.escape(end)}"
    if re.search(marked, shown(content=parts)):
        return MessageQuirks(reasoning_form="parts", reasoning_markers=(start, end))
    written = shown(content=f"{start}zqthought{end}{text}")
    closed_before = rf"{re.escape(end)}\s*{marked}"
    if re.search(marked, written) and not re.search(closed_before, written):
        return MessageQuirks(reasoning_form="text", reasoning_markers=(start, end))
    return MessageQuirks()


def drop_past_reasoning(messages: Sequence[Message]) -> list[Message]:
    """Return the messages without the reasoning of turns before the last user message."""
    last_user = max((at for at, message in enumerate(messages) if message.role == "user"), default=-1)
    return [
        attrs.evolve(message, reasoning=None) if at < last_user and message.reasoning else message
        for at, message in enumerate(messages)
    ]


def number_calls(turns: Sequence[Message], *, by_turn: bool) -> list[Message]:
    """Return the turns with call ids of the form `functions.NAME:INDEX`, in calls and results. `by_turn`:
    True if the index restarts in each turn instead of each conversation.
    """
    numbered: list[Message] = []
    ids: dict[str | None, str] = {}
    count = 0
    for turn in turns:
        if turn.role == "tool":
            numbered.append(attrs.evolve(turn, tool_call_id=ids.get(turn.tool_call_id, turn.tool_call_id)))
            continue
        count = 0 if by_turn else count
        calls: list[ToolCall] = []
        for call in turn.tool_calls:
            ids[call.id] = f"functions.{call.name}:{count}"
            calls.append(attrs.evolve(call, id=ids[call.id]))
            count += 1
        numbered.append(attrs.evolve(turn, tool_calls=tuple(calls)) if calls else turn)
    return numbered


def move_system_message(turns: Sequence[Message]) -> list[Message]:
    """Merge the system message into the last user message, unless that message is the last of all."""
    if not turns or turns[0].role != "system" or turns[-1].role == "user":
        return list(turns)
    system, *rest = turns
    for at in reversed(range(len(rest))):
        if rest[at].role == "user":
            text = join_paragraphs(system.text, rest[at].text)
            rest[at] = attrs.evolve(rest[at], content=(TextPart(text),))
            return rest
    return list(turns)


def content_with_reasoning(turn: Message, forms: MessageQuirks) -> Any:
    """Return a turn's content including its reasoning, as text or as a part before the text."""
    reasoning, text = turn.reasoning or "", turn.text
    if forms.reasoning_form == "parts":
        spoken = [{"type": "text", "text": text}] if text else []
        return [{"type": "thinking", "thinking": reasoning}, *spoken]
    start, end = forms.reasoning_markers
    line, lines = ("\n", "\n\n") if start == "<think>" else ("", "")
    return f"{start}{line}{reasoning}{line}{end}{lines}{text}"


def render_turns(
    convert: Callable[[MessageQuirks], list[TemplateMessage]],
    render: Callable[[list[TemplateMessage]], str],
    forms: MessageQuirks,
    *,
    without_content: bool,
) -> str:
    """Return a conversation as rendered text, with text beside calls in the model's form. `without_content`:
    True if a turn of calls must not have any content.
    """
    messages = convert(forms)
    texts = _take_texts(messages, None if without_content else "") if forms.call_head else []
    if not texts:
        return render(messages)
    try:
        rendered = _insert_texts(render(messages), texts, forms)
    except ProblemError:  # A template may look up a tool by the name that is marked here.
        rendered = None
    return render(convert(attrs.evolve(forms, call_head=""))) if rendered is None else rendered


def _take_texts(messages: list[TemplateMessage], empty: str | None) -> list[str]:
    """Remove and return the texts of messages with tool calls; mark the first call of each by its name."""
    texts = []
    for message in messages:
        text = message["content"]
        if message.get("tool_calls") and text and isinstance(text, str):
            function = message["tool_calls"][0]["function"]
            function["name"] = TEXT_BESIDE_CALL + function["name"]
            message["content"] = empty
            texts.append(text)
    return texts


def _insert_texts(rendered: str, texts: Sequence[str], forms: MessageQuirks) -> str | None:
    """Return a rendered conversation with the texts before their calls; None if a call is missing."""
    marked = forms.call_head + TEXT_BESIDE_CALL
    before, behind = forms.text_frame
    pieces, position = [], 0
    for text in texts:
        at = rendered.find(marked, position)
        if at < 0:
            return None
        pieces += [rendered[position:at], before, text, behind, forms.call_head]
        position = at + len(marked)
    return "".join([*pieces, rendered[position:]]).replace(TEXT_BESIDE_CALL, "")

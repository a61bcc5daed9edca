"""Turns put into an order that a template takes: who may speak when, and after whom.

Everything here works on messages of the IR and loses none of their text.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence

import attrs

from greenroom.engine.adapters.chat_template import TemplateTraits
from greenroom.schemas.messages import Message, TextPart, ToolCall
from greenroom.schemas.problems import invalid

WriteCall = Callable[[ToolCall], str]
"""A call in the words of the model."""


def name_results(messages: Sequence[Message]) -> list[Message]:
    """The messages, with every result carrying the name of the function that it comes from.

    Raises:
        ProblemError: 400 that names the first result without a call before it.
    """
    called: dict[str | None, str] = {}
    named: list[Message] = []
    for index, message in enumerate(messages):
        called.update((call.id, call.name) for call in message.tool_calls)
        if message.role == "tool" and message.tool_call_id not in called:
            field = f"messages[{index}].tool_call_id"
            if message.tool_call_id is None:
                raise invalid(f"`{field}` is missing: a tool message must name the call it answers.", field)
            raise invalid(
                f"`{field}` is '{message.tool_call_id[:80]}', but no earlier call has that id.", field
            )
        if message.role == "tool":
            message = attrs.evolve(message, name=called[message.tool_call_id])
        named.append(message)
    return named


def place_systems(messages: Sequence[Message], traits: TemplateTraits, instructions: str) -> list[Message]:
    """System messages where the template shows them, and the server's own instructions with them."""
    systems = list(itertools.takewhile(lambda message: message.role == "system", messages))
    rest = list(messages[len(systems) :])
    if instructions:
        first = join(systems[0].text if systems else "", instructions)
        systems = [Message("system", (TextPart(first),)), *systems[1:]]
    if not traits.several_systems and len(systems) > 1:
        systems = [Message("system", (TextPart(join(*(system.text for system in systems))),))]
    if not traits.late_system:
        rest = [_said_by_user(turn) if turn.role == "system" else turn for turn in rest]
    if systems and not rest and not traits.system_alone:
        rest = [attrs.evolve(systems.pop(), role="user")]
    if systems and not traits.system:
        user = Message("user", (TextPart(join(*(system.text for system in systems))),))
        systems = []
        rest = [_merge(user, rest[0]), *rest[1:]] if rest and rest[0].role == "user" else [user, *rest]
    return [*systems, *rest]


def speak(turns: Sequence[Message], traits: TemplateTraits, write_call: WriteCall) -> list[Message]:
    """Calls and results that the template cannot show, as text of the assistant and of the user."""
    spoken = _spoken_calls(turns, traits)
    return [_speak_turn(turn, spoken, traits, write_call) for turn in turns]


def merge_repeated(turns: Iterable[Message]) -> list[Message]:
    """One turn for each run of user or assistant turns; results of tools stay apart."""
    merged: list[Message] = []
    for turn in turns:
        same = bool(merged) and turn.role == merged[-1].role and turn.role in ("user", "assistant")
        if same and not _is_talked_over(merged[-1], turn):
            merged[-1] = _merge(merged[-1], turn)
        else:
            merged.append(turn)
    return merged


def split_calls(turns: Iterable[Message]) -> list[Message]:
    """Text and calls in turns of their own, for templates that show only one of them."""
    split: list[Message] = []
    for turn in turns:
        if turn.tool_calls and turn.text:
            split.append(attrs.evolve(turn, tool_calls=()))
            turn = attrs.evolve(turn, content=(), reasoning=None)
        split.append(turn)
    return split


def one_call_a_turn(turns: Sequence[Message]) -> list[Message]:
    """Calls of one turn one after the other, each followed by its result if that came at once."""
    single: list[Message] = []
    results: list[Message] = []
    for index, turn in enumerate(turns):
        if turn in results:
            results.remove(turn)
            continue
        first, *others = turn.tool_calls or (None,)
        if first is None or not others:
            single.append(turn)
            continue
        results = list(itertools.takewhile(lambda then: then.role == "tool", turns[index + 1 :]))
        for number, call in enumerate(turn.tool_calls):
            bare = attrs.evolve(turn, content=(), reasoning=None) if number else turn
            own = [result for result in results if result.tool_call_id == call.id]
            single += [attrs.evolve(bare, tool_calls=(call,)), *own]
        own_ids = {call.id for call in turn.tool_calls}
        results = [result for result in results if result.tool_call_id in own_ids]
    return single


def open_with_user(turns: Sequence[Message]) -> list[Message]:
    """An empty user turn before an assistant who would have the first word."""
    for index, turn in enumerate(turns):
        if turn.role in ("assistant", "tool"):
            return [*turns[:index], Message("user"), *turns[index:]]
        if turn.role == "user":
            break
    return list(turns)


def join(*texts: str) -> str:
    """Texts as paragraphs."""
    return "\n\n".join(filter(None, texts))


def _spoken_calls(turns: Sequence[Message], traits: TemplateTraits) -> set[str | None]:
    """Ids of the calls that must be written as text."""
    every = {call.id for turn in turns for call in turn.tool_calls}
    if not traits.tool_calls:
        return set(every)
    pairs = list(itertools.pairwise(turns))
    broken_off = any(then.role == "user" and (turn.role == "tool" or turn.tool_calls) for turn, then in pairs)
    talked_over = any(_is_talked_over(turn, then) for turn, then in pairs)
    if (broken_off and not traits.user_after_tool) or (talked_over and not traits.repeated_roles):
        return set(every)
    if traits.text_beside_calls or traits.repeated_roles:
        return set()
    return {call.id for turn in turns if turn.text for call in turn.tool_calls}


def _is_talked_over(turn: Message, then: Message) -> bool:
    """The assistant speaks right after a call: in one turn, the text would come to stand before the call."""
    return bool(turn.tool_calls) and then.role == "assistant" and bool(then.text)


def _speak_turn(
    turn: Message, spoken: set[str | None], traits: TemplateTraits, write_call: WriteCall
) -> Message:
    if turn.role == "tool":
        if traits.tool_results and (turn.tool_call_id not in spoken or not traits.tool_calls):
            return turn
        return Message("user", (TextPart(f"Result of {turn.name}:\n{turn.text}"),))
    written = [write_call(call) for call in turn.tool_calls if call.id in spoken]
    if not written:
        return turn
    text = "\n".join(filter(None, [turn.text, *written]))
    kept = tuple(call for call in turn.tool_calls if call.id not in spoken)
    return attrs.evolve(turn, content=(TextPart(text),), tool_calls=kept)


def _merge(first: Message, second: Message) -> Message:
    return attrs.evolve(
        second,
        content=(TextPart(join(first.text, second.text)),),
        reasoning=join(first.reasoning or "", second.reasoning or "") or None,
        tool_calls=(*first.tool_calls, *second.tool_calls),
        name=second.name or first.name,
    )


def _said_by_user(system: Message) -> Message:
    return Message("user", (TextPart(f"[System message]\n{system.text}"),))

"""Reordering of messages into a sequence of roles that a template takes.

All functions work on the IR's messages and keep all of their text.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence

import attrs

from greenroom.engine.adapters.template_probe import TemplateTraits
from greenroom.schemas.messages.messages import Message, TextPart, ToolCall
from greenroom.schemas.problems import invalid

RenderCalls = Callable[[Sequence[ToolCall]], str]
"""Function that renders the calls of one turn in the model's own format."""


def add_tool_names(messages: Sequence[Message]) -> list[Message]:
    """Return the messages with the function's name on every tool result. Raises ProblemError: 400 that names
    the first result without an earlier call.
    """
    names: dict[str | None, str] = {}
    named: list[Message] = []
    for index, message in enumerate(messages):
        names.update((call.id, call.name) for call in message.tool_calls)
        if message.role == "tool" and message.tool_call_id not in names:
            field = f"messages[{index}].tool_call_id"
            if message.tool_call_id is None:
                raise invalid(f"`{field}` is missing: a tool message must name the call it answers.", field)
            raise invalid(
                f"`{field}` is '{message.tool_call_id[:80]}', but no earlier call has that id.", field
            )
        if message.role == "tool":
            message = attrs.evolve(message, name=names[message.tool_call_id])
        named.append(message)
    return named


def place_results_first(messages: Iterable[Message]) -> list[Message]:
    """Move tool results up to their calls, before user and system messages in between."""
    placed: list[Message] = []
    meanwhile: list[Message] = []
    waits = False
    for message in messages:
        if message.role == "assistant":
            placed += [*meanwhile, message]
            meanwhile, waits = [], bool(message.tool_calls)
        else:
            (meanwhile if waits and message.role != "tool" else placed).append(message)
    return [*placed, *meanwhile]


def tell_calls_apart(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages with unique call ids per turn; results with equal ids are matched in order."""
    told: list[Message] = []
    renamed: dict[str | None, list[str]] = {}
    for message in messages:
        ids = [call.id for call in message.tool_calls]
        if ids:
            renamed = {}
        if len(set(ids)) < len(ids):
            calls = []
            for number, call in enumerate(message.tool_calls):
                unique = call.id if call.id not in renamed else f"{call.id}-{number}"
                renamed.setdefault(call.id, []).append(unique)
                calls.append(attrs.evolve(call, id=unique))
            message = attrs.evolve(message, tool_calls=tuple(calls))
        elif waiting := renamed.get(message.tool_call_id):
            message = attrs.evolve(message, tool_call_id=waiting.pop(0))
        told.append(message)
    return told


def drop_empty_answers(messages: Sequence[Message]) -> list[Message]:
    """Return the messages without past assistant turns that are empty."""
    *past, last = messages
    return [
        *(
            turn
            for turn in past
            if turn.role != "assistant" or turn.text or turn.reasoning or turn.tool_calls
        ),
        last,
    ]


def arrange_system_messages(
    messages: Sequence[Message], traits: TemplateTraits, instructions: str
) -> list[Message]:
    """Move system messages to where the template shows them, and add the server's own instructions."""
    systems = list(itertools.takewhile(lambda message: message.role == "system", messages))
    rest = list(messages[len(systems) :])
    if instructions:
        first = join_paragraphs(systems[0].text if systems else "", instructions)
        systems = [Message("system", (TextPart(first),)), *systems[1:]]
    if not traits.several_systems and len(systems) > 1:
        systems = [Message("system", (TextPart(join_paragraphs(*(system.text for system in systems))),))]
    if not traits.late_system:
        rest = [_as_user_message(turn) if turn.role == "system" else turn for turn in rest]
    if systems and not rest and not traits.system_alone:
        rest = [attrs.evolve(systems.pop(), role="user")]
    if systems and not traits.system:
        user = Message("user", (TextPart(join_paragraphs(*(system.text for system in systems))),))
        systems = []
        rest = (
            [_merge_messages(user, rest[0]), *rest[1:]] if rest and rest[0].role == "user" else [user, *rest]
        )
    return [*systems, *rest]


def render_calls_as_text(
    turns: Sequence[Message], traits: TemplateTraits, render_calls: RenderCalls
) -> list[Message]:
    call_ids = _calls_to_render(turns, traits)
    return [_render_turn_as_text(turn, call_ids, traits, render_calls) for turn in turns]


def merge_repeated_roles(turns: Iterable[Message]) -> list[Message]:
    """Merge consecutive user turns and consecutive assistant turns; tool results stay separate."""
    runs: list[list[Message]] = []
    called = False
    for turn in turns:
        same = bool(runs) and turn.role == runs[-1][0].role and turn.role in ("user", "assistant")
        if same and not (called and turn.text):
            runs[-1].append(turn)
            called = called or bool(turn.tool_calls)
        else:
            runs.append([turn])
            called = bool(turn.tool_calls) and turn.role == "assistant"
    return [run[0] if len(run) == 1 else _merge_messages(*run) for run in runs]


def split_text_from_calls(turns: Iterable[Message]) -> list[Message]:
    """Put text and calls into separate turns, for templates that show only one of them.

    The reasoning stays with the calls: templates that drop the reasoning of answers keep that of calls.
    """
    split: list[Message] = []
    for turn in turns:
        if turn.tool_calls and turn.text:
            split.append(attrs.evolve(turn, tool_calls=(), reasoning=None))
            turn = attrs.evolve(turn, content=())
        split.append(turn)
    return split


def split_parallel_calls(turns: Sequence[Message]) -> list[Message]:
    """Give every call its own turn, followed by its result if that came immediately."""
    single: list[Message] = []
    placed: set[int] = set()
    for index, turn in enumerate(turns):
        if index in placed:
            continue
        if len(turn.tool_calls) < 2:
            single.append(turn)
            continue
        results: dict[str | None, list[int]] = {}
        for at in itertools.takewhile(lambda at: turns[at].role == "tool", range(index + 1, len(turns))):
            results.setdefault(turns[at].tool_call_id, []).append(at)
        for number, call in enumerate(turn.tool_calls):
            bare = attrs.evolve(turn, content=(), reasoning=None) if number else turn
            own = results.pop(call.id, [])
            single += [attrs.evolve(bare, tool_calls=(call,)), *(turns[at] for at in own)]
            placed.update(own)
    return single


def insert_first_user_turn(turns: Sequence[Message]) -> list[Message]:
    """Insert an empty user turn before a leading assistant or tool turn."""
    for index, turn in enumerate(turns):
        if turn.role in ("assistant", "tool"):
            return [*turns[:index], Message("user"), *turns[index:]]
        if turn.role == "user":
            break
    return list(turns)


def join_paragraphs(*texts: str) -> str:
    return "\n\n".join(filter(None, texts))


def _calls_to_render(turns: Sequence[Message], traits: TemplateTraits) -> set[str | None]:
    every = {call.id for turn in turns for call in turn.tool_calls}
    if not traits.tool_calls:
        return set(every)
    pairs = list(itertools.pairwise(turns))
    interrupted = any(
        then.role == "user" and (turn.role == "tool" or turn.tool_calls) for turn, then in pairs
    )
    followed_by_text = any(_has_text_after_call(turn, then) for turn, then in pairs)
    if (interrupted and not traits.user_after_tool) or (followed_by_text and not traits.repeated_roles):
        return set(every)
    if traits.text_beside_calls or traits.repeated_roles:
        return set()
    return {call.id for turn in turns if turn.text for call in turn.tool_calls}


def _has_text_after_call(turn: Message, then: Message) -> bool:
    """Return whether assistant text follows a call; merged into one turn, it would precede the call."""
    return bool(turn.tool_calls) and then.role == "assistant" and bool(then.text)


def _render_turn_as_text(
    turn: Message, call_ids: set[str | None], traits: TemplateTraits, render_calls: RenderCalls
) -> Message:
    if turn.role == "tool":
        if traits.tool_results and (turn.tool_call_id not in call_ids or not traits.tool_calls):
            return turn
        return Message("user", (TextPart(f"Result of {turn.name}:\n{turn.text}"),))
    as_text = [call for call in turn.tool_calls if call.id in call_ids]
    if not as_text:
        return turn
    text = "\n".join(filter(None, [turn.text, render_calls(as_text)]))
    remaining = tuple(call for call in turn.tool_calls if call.id not in call_ids)
    return attrs.evolve(turn, content=(TextPart(text),), tool_calls=remaining)


def _merge_messages(*messages: Message) -> Message:
    return attrs.evolve(
        messages[-1],
        content=(TextPart(join_paragraphs(*(message.text for message in messages))),),
        reasoning=join_paragraphs(*(message.reasoning or "" for message in messages)) or None,
        tool_calls=tuple(itertools.chain.from_iterable(message.tool_calls for message in messages)),
        name=next((message.name for message in reversed(messages) if message.name), None),
    )


def _as_user_message(system: Message) -> Message:
    return Message("user", (TextPart(f"[System message]\n{system.text}"),))

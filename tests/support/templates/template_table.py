"""Lists of the results of conversations under chat templates of real models.

    python -m greenroom.tests.support.templates.template_table FOLDER

FOLDER holds templates as NAME.jinja. Those of parsers_of_templates.md come from llama.cpp's
models/templates, from vLLM's examples/tool_chat_template_*.jinja and from trl's chat_templates. The templates
of installed packages are tried too. The exit status is 1 if a prompt loses part of a conversation, or if the
model's parser cannot read a call in it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import attrs
import structlog

from greenroom.engine.adapters.adapter import Adapter
from greenroom.engine.adapters.round_trip import ParsedTurn, RenderedTurn, read_turn
from greenroom.engine.loading.libraries import import_text_libraries
from greenroom.schemas.messages.messages import Message, TextPart, Tool, ToolCall
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.problems import ProblemError
from greenroom.tests.support.templates.real_templates import adapter_of_template, packaged_templates


def _say(role: Any, text: str = "", **fields: Any) -> Message:
    return Message(role, (TextPart(text),) if text else (), **fields)


_CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
_RICH = {
    "type": "object",
    "properties": {
        "a": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "b": {"type": ["string", "null"]},
        "c": {"type": "array", "items": {"type": "object", "properties": {"d": {"enum": ["x", "y"]}}}},
        "e": {"$ref": "#/$defs/E"},
    },
    "$defs": {"E": {"type": "string"}},
}
WEATHER = Tool("get_weather", "zqpurpose", _CITY)
TOOLS = (WEATHER, Tool("no_arguments", "zqnone", {}), Tool("rich", "zqrich", _RICH))
_ONE = ToolCall("call_abcdefghijklmnop", "get_weather", '{"city": "Oslo-zq"}')
_TWO = ToolCall("call_second", "get_weather", '{"city": "Rome-zq"}')
_SYSTEM, _USER = _say("system", "zqsystem"), _say("user", "zquser")
_RESULT = _say("tool", "zqresult", tool_call_id=_ONE.id)
_SECOND = _say("tool", "zqsecond", tool_call_id=_TWO.id)
_CALLING = _say("assistant", "zqbeside", tool_calls=(_ONE,), reasoning="zqthought")

CONVERSATIONS: dict[str, tuple[Message, ...]] = {
    "text": (_SYSTEM, _USER, _say("assistant", "zqanswer"), _say("user", "zqlast")),
    "call": (_SYSTEM, _USER, _CALLING, _RESULT),
    "two calls": (_USER, _say("assistant", tool_calls=(_ONE, _TWO)), _RESULT, _SECOND),
    "no arguments": (
        _USER,
        _say("assistant", tool_calls=(ToolCall("call_z", "no_arguments", "{}"),)),
        _say("tool", "zqresult", tool_call_id="call_z"),
    ),
    "late system message": (
        _SYSTEM,
        _USER,
        _CALLING,
        _RESULT,
        _say("assistant", "zqanswer"),
        _say("system", "zqlate"),
        _say("user", "zqlast"),
    ),
    "system message last": (_USER, _say("assistant", tool_calls=(_ONE,)), _RESULT, _say("system", "zqlate")),
    "user breaks off": (_USER, _say("assistant", tool_calls=(_ONE,)), _RESULT, _say("user", "zqlast")),
    "words before the result": (
        _USER,
        _say("assistant", tool_calls=(_ONE,)),
        _say("user", "zqlast"),
        _RESULT,
    ),
    "two users": (_USER, _say("user", "zqlast")),
    "assistant first": (_say("assistant", "zqanswer"), _say("user", "zqlast")),
}
"""Conversations that every template has to render completely."""


@attrs.frozen
class Row:
    """The results of one template."""

    name: str
    adapter: Adapter
    faults: tuple[str, ...]

    def cells(self) -> tuple[str, str, str]:
        """Return the parts of a prompt that Greenroom writes, and the parsers of calls and reasoning."""
        choice = self.adapter.choice
        shown = choice.traits is not None and choice.traits.tool_calls
        return (
            _WRITTEN[choice.native_tools, shown],
            _parser(choice.tool_parser.parser_id, choice.calls_by),
            _parser(choice.reasoning_parser.parser_id, choice.reasoning_by),
        )


_WRITTEN = {
    (True, True): "Nothing",
    (True, False): "Calls",
    (False, True): "Tools",
    (False, False): "Both",
}
"""Headings of the list, by whether the template has tools, and past calls."""

_LINE = re.compile(r"- `(.+?)` (?:\((.+?)\) )?and `(.+?)`(?: \((.+?)\))?: (.+)")


def _parser(parser_id: str, chosen_by: str) -> str:
    """Return a parser as the list writes it: the way it was chosen is left out for a round trip."""
    return f"`{parser_id}`" + (f" ({chosen_by})" if chosen_by != "round trip" else "")


def listing(rows: Iterable[Row]) -> str:
    """Return the results as Markdown lists, with one line for all templates of the same result."""
    names: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        names.setdefault(row.cells(), []).append(row.name)
    lines = []
    for heading in _WRITTEN.values():
        lines += [f"### {heading}", ""]
        lines += [
            f"- {calls} and {reasoning}: {', '.join(same)}"
            for (written, calls, reasoning), same in sorted(names.items())
            if written == heading
        ]
        lines.append("")
    return "\n".join(lines)


def documented_cells(page: str) -> dict[str, tuple[str, str, str]]:
    """Return the cells about each template in a page that holds such lists."""
    cells = {}
    for section in page.split("### ")[1:]:
        for line in section.splitlines()[1:]:
            if (match := _LINE.fullmatch(line)) is not None:
                calls, calls_by, reasoning, reasoning_by, names = match.groups("round trip")
                for name in names.split(", "):
                    parsers = _parser(calls, calls_by), _parser(reasoning, reasoning_by)
                    cells[name] = (section.partition("\n")[0], *parsers)
    return cells


def try_template(name: str, template: str, folder: Path) -> Row:
    """Render the conversations with a template; return the faults found."""
    adapter = adapter_of_template(name, template, folder)
    faults = itertools.chain.from_iterable(
        (f"{about}: {fault}" for fault in _faults(adapter, about, messages))
        for about, messages in CONVERSATIONS.items()
    )
    return Row(name, adapter, tuple(faults))


def _faults(adapter: Adapter, about: str, messages: Sequence[Message]) -> list[str]:
    calls = any(message.tool_calls for message in messages)
    try:
        read = _prompt(adapter, messages, TOOLS if calls else ())
    except ProblemError as error:
        return [error.problem.detail]
    faults = [] if not calls or all(tool.description in read for tool in TOOLS) else ["tools are lost"]
    words = [message.text for message in messages]
    words += [text for call in _calls(messages) for text in json.loads(call.arguments).values()]
    faults += [f"{word} is lost" for word in words if word and word not in read]
    faults += [f"{call.name} is lost" for call in _calls(messages) if call.name not in read]
    faults += [
        f"{value} stands {read.count(value)} times"
        for call in _calls(messages)
        for value in json.loads(call.arguments).values()
        if read.count(value) > 1
    ]
    if not faults and about in ("call", "two calls", "no arguments"):
        faults += _unread(adapter, messages, read)
    return faults


def _unread(adapter: Adapter, messages: Sequence[Message], read: str) -> list[str]:
    """Return a fault for each rendered call or reasoning text that the model's parser cannot read."""
    faults = []
    shown = read[read.rindex("zquser") + len("zquser") :]
    turns = _turns(adapter, shown)
    found = [call for turn in turns for call in turn.calls]
    for call in _calls(messages):
        if not any(
            name == call.name and json.loads(arguments) == json.loads(call.arguments)
            for name, arguments in found
        ):
            faults.append(f"{adapter.tool_parser.parser_id} does not read {call.arguments} in {shown!r}")
    if "zqthought" in shown and not any(turn.reasoning.strip() == "zqthought" for turn in turns):
        faults.append(f"{adapter.reasoning_parser.parser_id} does not read the thought in {shown!r}")
    return faults


def _turns(adapter: Adapter, shown: str) -> list[ParsedTurn]:
    """Parse every part of a prompt that may be a turn: up to any end token, from any possible marker on."""
    ends = [text for text, ident in adapter.tokenizer.added_tokens.items() if ident in adapter.stop_token_ids]
    pieces = [shown]
    for end in (*ends, "zqresult", "zqsecond"):
        pieces = [part for piece in pieces for part in piece.split(end)]
    turns = []
    for piece in pieces:
        starts = [0, *(at + 1 for at, letter in enumerate(piece) if letter in ">]\n: ")]
        for start in starts if "zq" in piece or "no_arguments" in piece else ():
            turn = RenderedTurn(piece[:start], piece[start:])
            turns.append(read_turn(turn, adapter.tool_parser, adapter.reasoning_parser, TOOLS))
    return turns


def _calls(messages: Sequence[Message]) -> list[ToolCall]:
    return [call for message in messages for call in message.tool_calls]


def _prompt(adapter: Adapter, messages: Sequence[Message], tools: tuple[Tool, ...]) -> str:
    request = InferenceRequest("r", ModelKey("m"), ChatInput(tuple(messages), tools=tools))
    return adapter.tokenizer.decode(adapter.prepare_input(request).tokens)


def main() -> int:
    """Print the lists and all faults."""
    arguments = argparse.ArgumentParser(description="What becomes of conversations under chat templates.")
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--only", default="", help="a part of the names")
    options = arguments.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    import_text_libraries()
    with tempfile.TemporaryDirectory() as scratch:
        found = {path.stem: path.read_text(encoding="utf-8") for path in options.folder.glob("*.jinja")}
        templates = sorted({**found, **packaged_templates()}.items())
        tried = ((name, text) for name, text in templates if options.only in name)
        rows = [try_template(name, text, Path(scratch) / name) for name, text in tried]
    print(listing(rows))
    for written, count in sorted(Counter(row.cells()[0] for row in rows).items()):
        print(f"{written}: {count} of {len(rows)}")
    faults = [f"{row.name}: {fault}" for row in rows for fault in row.faults]
    print("\n".join(faults), file=sys.stderr)
    return 1 if faults or not rows else 0


if __name__ == "__main__":
    sys.exit(main())

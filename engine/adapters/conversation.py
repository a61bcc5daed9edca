"""Conversion of messages into a template's form without loss."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import string
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import unquote

import attrs

from greenroom.engine.adapters import message_normalization as normalization
from greenroom.engine.adapters.message_quirks import (
    PLAIN_FORMS,
    MessageQuirks,
    content_with_reasoning,
    drop_past_reasoning,
    move_system_message,
    number_calls,
)
from greenroom.engine.adapters.reasoning_switches import NO_CHANGES, PromptChanges, add_prompt_changes
from greenroom.engine.adapters.template_probe import TemplateMessage, TemplateTraits, as_parts
from greenroom.engine.formats.registry import make_tool_parser
from greenroom.engine.parsers.parser import ParsedCall, ToolCallParser
from greenroom.engine.tokenizer.control_tokens import IMAGE, ControlTokenMarker
from greenroom.schemas.messages.messages import (
    ContentPart,
    ImagePart,
    JsonObject,
    Message,
    TextPart,
    Tool,
    ToolCall,
)

Medium = Literal["image", "audio"]
"""Type of a content part that is not text, as templates name it."""

IMAGE_NUMBER = re.compile(f"{IMAGE}([a-z]+)(\\d+){IMAGE}")
"""Placeholder of an image or audio in text: its medium and number."""

NO_MEDIA: Mapping[str, Collection[str]] = {}  # Media parts by role for a template that takes only text

_NUMBER_FIELD = "greenroom_number"  # Key of a part's number, which templates ignore


@attrs.frozen
class RenderedImage(ImagePart):
    """An image or audio of the model's input, processed for its prompt. `tokens`: number of its tokens in the
    prompt.
    """

    number: int = attrs.field(kw_only=True)
    tokens: int = attrs.field(kw_only=True)
    processed: Any = attrs.field(kw_only=True, eq=False, repr=False)
    medium: Medium = attrs.field(default="image", kw_only=True)


def marked_text(content: Sequence[ContentPart], marker: ControlTokenMarker) -> str:
    """Return content as one text, with control tokens marked and images as numbered placeholders."""
    pieces: list[str] = []
    text = ""
    for part in content:
        match part:
            case TextPart():
                # Joined before marking, since two parts could form one token.
                text += part.text
            case RenderedImage():
                pieces += [marker.text(text), f"{IMAGE}{part.medium}{part.number}{IMAGE}"]
                text = ""
    return "".join([*pieces, marker.text(text)])


def with_image_parts(message: TemplateMessage, media: Collection[str]) -> TemplateMessage:
    """Return a message whose image placeholders are replaced with content parts."""
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    if not any(IMAGE in (part.get("text") or "") for part in parts):
        return message
    split: list[dict[str, Any]] = []
    for part in parts:
        if part.get("type") != "text":
            split.append(part)
            continue
        split += _split(str(part["text"]), media)
    return {**message, "content": split}


def _split(text: str, media: Collection[str]) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    at = 0
    for match in IMAGE_NUMBER.finditer(text):
        if match[1] not in media:
            continue
        if match.start() > at:
            parts.append({"type": "text", "text": text[at : match.start()]})
        parts.append({"type": match[1], _NUMBER_FIELD: int(match[2])})
        at = match.end()
    if at < len(text) or not parts:
        parts.append({"type": "text", "text": text[at:]})
    return parts


def numbers_in_parts(messages: Sequence[TemplateMessage]) -> tuple[int, ...]:
    contents = (message["content"] for message in messages if isinstance(message.get("content"), list))
    return tuple(part[_NUMBER_FIELD] for content in contents for part in content if _NUMBER_FIELD in part)


_SHORT_ID = re.compile(r"[A-Za-z0-9]{9}")
_DIGITS = string.digits + string.ascii_letters


class MessageConverter:
    """Converts messages into the form that one template takes. Stateless between conversations.

    Args:
        parser: Parser of the model's calls, to render calls that the template cannot show.
        marker: Marker of control tokens in user text.
        media: Media allowed as content parts, by role; others become numbered placeholders in text.
    """

    def __init__(
        self,
        traits: TemplateTraits,
        parser: ToolCallParser,
        marker: ControlTokenMarker,
        forms: MessageQuirks = PLAIN_FORMS,
        media: Mapping[str, Collection[str]] = NO_MEDIA,
    ) -> None:
        beside = forms.text_beside_calls or bool(forms.call_head)
        self._traits = attrs.evolve(traits, text_beside_calls=beside)
        self._parser = parser
        self._marker = marker
        self._forms = forms
        self._media = media

    def convert(
        self, messages: Sequence[Message], instructions: str = "", changes: PromptChanges = NO_CHANGES
    ) -> list[TemplateMessage]:
        """Return the conversation for the template. `instructions`: the server's own text for the system
        message; it is not marked. Raises ProblemError: 400 for a tool result without a call.
        """
        traits, forms = self._traits, self._forms
        if forms.reasoning_form == "text":
            messages = drop_past_reasoning(messages)
        messages = normalization.tell_calls_apart(messages)
        named = normalization.add_tool_names(messages)
        if not forms.late_results:
            named = normalization.place_results_first(named)
        if not forms.empty_answers:
            named = normalization.drop_empty_answers(named)
        marked = [self._mark(message) for message in named]
        marked = add_prompt_changes(marked, changes)
        turns = normalization.arrange_system_messages(marked, traits, instructions)
        if not traits.repeated_roles and traits.tool_calls:
            turns = normalization.merge_repeated_roles(turns)
        turns = normalization.render_calls_as_text(turns, traits, self._render_calls)
        if not traits.repeated_roles:
            turns = normalization.merge_repeated_roles(turns)
        if not traits.parallel_calls:
            turns = normalization.split_parallel_calls(turns)
        if not traits.text_beside_calls:
            turns = normalization.split_text_from_calls(turns)
        if not traits.assistant_first:
            turns = normalization.insert_first_user_turn(turns)
        if not forms.system_with_result:
            turns = move_system_message(turns)
        if forms.call_ids != "any":
            turns = number_calls(turns, by_turn=forms.call_ids == "turn")
        converted = [self._convert_turn(turn) for turn in turns]
        if not forms.empty_beginning and converted and converted[0]["content"] == "":
            converted[0]["content"] = " "  # Hunyuan A13B's template fails on an empty first message.
        shaped = [as_parts(turn) for turn in converted] if traits.parts else converted
        return [self._with_image_parts(turn) for turn in shaped]

    def _mark(self, message: Message) -> Message:
        mark = self._marker.text
        return attrs.evolve(
            message,
            content=(TextPart(marked_text(message.content, self._marker)),) if message.content else (),
            reasoning=mark(message.reasoning) if message.reasoning else None,
            name=mark(message.name) if message.name else None,
        )

    def _convert_turn(self, turn: Message) -> TemplateMessage:
        converted: TemplateMessage = {"role": turn.role, "content": turn.text}
        if turn.name:
            converted["name"] = turn.name
        if turn.reasoning and self._forms.reasoning_form == "field":
            converted[self._forms.reasoning_field] = turn.reasoning
        elif turn.reasoning:
            converted["content"] = content_with_reasoning(turn, self._forms)
        if turn.tool_call_id is not None:
            converted["tool_call_id"] = self._call_id(turn.tool_call_id)
        if turn.tool_calls:
            converted["tool_calls"] = [self._call(call) for call in turn.tool_calls]
            if not converted["content"] and self._traits.calls_without_content:
                converted["content"] = None
        return converted

    def _with_image_parts(self, turn: TemplateMessage) -> TemplateMessage:
        media = () if turn.get("tool_calls") else self._media.get(turn["role"], ())
        return with_image_parts(turn, media) if media else turn

    def _call(self, call: ToolCall) -> dict[str, Any]:
        function = {"name": self._marker.text(call.name), "arguments": self._arguments(call.arguments)}
        return {"id": self._call_id(call.id), "type": "function", "function": function}

    def _arguments(self, text: str) -> Any:
        """Return arguments as the template needs them: an object if it iterates over it, else JSON text."""
        decoded = self._decode(text)
        if not self._traits.arguments_as_text:
            return decoded if isinstance(decoded, dict) else {"arguments": decoded}
        return (
            json.dumps(decoded, ensure_ascii=False) if isinstance(decoded, dict) else self._marker.text(text)
        )

    def _decode(self, text: str) -> Any:
        """Return arguments as decoded JSON with marked strings; invalid JSON stays marked text."""
        try:
            return self._marker.value(json.loads(text)) if text.strip() else {}
        except (ValueError, RecursionError):
            return self._marker.text(text)

    def _render_calls(self, calls: Sequence[ToolCall]) -> str:
        return render_calls(self._parser, [self._marked_call(call) for call in calls])

    def _marked_call(self, call: ToolCall) -> ParsedCall:
        decoded = self._decode(call.arguments)
        arguments = json.dumps(decoded, ensure_ascii=False) if isinstance(decoded, dict) else None
        return ParsedCall(self._marker.text(call.name), arguments or self._marker.text(call.arguments))

    def _call_id(self, call_id: str) -> str:
        return short_call_id(call_id) if self._traits.short_call_ids else self._marker.text(call_id)


def short_call_id(call_id: str) -> str:
    """Return a stable id of nine letters or digits for any call id, as Mistral's templates require."""
    if _SHORT_ID.fullmatch(call_id):
        return call_id
    number = int.from_bytes(hashlib.sha256(call_id.encode()).digest()[:16], "big")
    digits = []
    for _ in range(9):
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(digits)


FALLBACK_FORMAT = "hermes_json"
"""Call format for models without their own: the one most models are trained on."""

_NO_PARAMETERS = {"type": "object", "properties": {}}
_DEFINITIONS = ("$defs", "definitions")
_LONGEST = 50_000  # Limit on the text that references add to a tool, in characters: they may multiply
_DEEPEST = 60  # Limit on the levels of lists and objects at which a reference is replaced
_MOST_TOOLS, _MOST_NAMES, _LONGEST_NAME = 1_000, 20, 100
_DATA = frozenset({"const", "default", "enum", "example", "examples", "required"})
_KEYWORDS = frozenset(
    (
        *("type", "description", "properties", "required", "enum", "items", "name", "title", "default"),
        *("nullable", "format", "anyOf", "oneOf", "allOf", "not", "const", "pattern", "minimum", "maximum"),
        *("minLength", "maxLength", "minItems", "maxItems", "additionalProperties", "parameters", "function"),
        *("strict", "examples", "example", "key", "value", "keys", "values", "arguments", "$ref", "$defs"),
        *("response", "return", "returns", "deprecated", "propertyOrdering", "prefixItems", "uniqueItems"),
    )
)
"""Names that a template may take for something else than a parameter."""


def as_openai_tool(tool: Tool) -> dict[str, Any]:
    """Return the tool in the shape of OpenAI's API, which templates read; few of them resolve `$ref`."""
    parameters = inlined(tool.parameters) or _NO_PARAMETERS
    function = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": function}


def inlined(schema: JsonObject) -> JsonObject:
    """Return a JSON Schema with its local references replaced by the subschemas they point to.

    A reference to what surrounds it stays, as do all beyond a limit of length or depth, with their
    definitions.
    """
    left = _LONGEST

    def copy(part: Any, within: tuple[str, ...], depth: int) -> Any:
        nonlocal left
        texts = [part] if isinstance(part, str) else part if isinstance(part, dict) else ()
        left -= 1 + sum(map(len, texts)) if within else 0
        if isinstance(part, list):
            return [copy(each, within, depth + 1) for each in part]
        if not isinstance(part, dict):
            return part
        place = part.get("$ref")
        if not isinstance(place, str) or place in within or depth > _DEEPEST or left < 0:
            return {name: copy(each, within, depth + 1) for name, each in part.items()}
        target = _at(schema, place)
        if not isinstance(target, dict):
            return part
        beside = {name: copy(each, within, depth + 1) for name, each in part.items() if name != "$ref"}
        return {**copy(target, (*within, place), depth + 1), **beside}

    whole: dict[str, Any] = copy({name: schema[name] for name in schema if name not in _DEFINITIONS}, (), 0)
    if "$ref" in str(whole):
        whole |= {name: schema[name] for name in _DEFINITIONS if name in schema}
    return whole


def _at(schema: JsonObject, place: str) -> Any:
    """Return the subschema at a local reference, `#/…`; None if there is none, or it is the whole schema."""
    found: Any = schema if place.startswith("#/") else None
    for part in unquote(place).split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        found = found.get(key) if isinstance(found, dict) else None
    return found


class UnshownParameters:
    """Finds the parameters that a chat template keeps from the model, by rendering each tool once.

    Some templates take names such as `type` for keywords of the schema, or leave out what lies in arrays.

    Args:
        render: Function that renders tools, in the shape of OpenAI's API; None if the template refuses.
    """

    def __init__(self, render: Callable[[list[dict[str, Any]]], str | None]) -> None:
        self._render = render
        self._found: dict[bytes, tuple[str, ...]] = {}

    def of(self, tool: Tool) -> tuple[str, ...]:
        """Return the first names, cut short, of the parameters at any depth that the rendered tool lacks."""
        function = as_openai_tool(tool)["function"]
        key = hashlib.sha256(json.dumps(function["parameters"]).encode()).digest()
        if key not in self._found:
            if len(self._found) >= _MOST_TOOLS:
                self._found.clear()
            names: list[str] = []
            marked = {**function, "parameters": _with_marks(function["parameters"], names)}
            text = self._render([{"type": "function", "function": marked}])
            shown = range(len(names)) if text is None else set(map(int, _MARK.findall(text)))
            unshown = dict.fromkeys(name[:_LONGEST_NAME] for i, name in enumerate(names) if i not in shown)
            self._found[key] = tuple(itertools.islice(unshown, _MOST_NAMES))
        return self._found[key]


_MARK = re.compile("zq([0-9]{1,9})qz")


def _mark(number: int) -> str:
    return f"zq{number}qz"


def _with_marks(schema: Any, names: list[str]) -> Any:
    """Return a schema whose properties bear marks, and append their names.

    A mark takes the place of the name, or that of the description if the name is a keyword.
    """
    if not isinstance(schema, dict):
        return [_with_marks(each, names) for each in schema] if isinstance(schema, list) else schema
    marked = {
        keyword: value if keyword in _DATA else _with_marks(value, names)
        for keyword, value in schema.items()
        if keyword != "properties"
    }
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return marked
    renamed, called = dict[str, Any](), dict[str, str]()
    for name, value in properties.items():
        mark = _mark(len(names))
        names.append(name)
        inner = _with_marks(value, names)
        if name in _KEYWORDS and isinstance(inner, dict):
            renamed[name] = {**inner, "description": mark}
        else:
            renamed[mark], called[name] = inner, mark
    required = schema.get("required")
    if isinstance(required, list):
        marked["required"] = [called.get(name, name) if isinstance(name, str) else name for name in required]
    return {**marked, "properties": renamed}


def full_descriptions(tools: Sequence[Tool]) -> str:
    """Return system message text that describes tools of which the template shows a part."""
    described = "\n".join(json.dumps(as_openai_tool(tool)["function"], ensure_ascii=False) for tool in tools)
    return f"These functions have more parameters than the list of tools shows. In full:\n\n{described}"


def tool_prompt(tools: Sequence[Tool], parser: ToolCallParser) -> str:
    """Return system message text that describes the tools and the call format that `parser` reads."""
    described = "\n".join(json.dumps(as_openai_tool(tool)["function"], ensure_ascii=False) for tool in tools)
    example = render_calls(parser, [ParsedCall("function_name", '{"parameter": "value"}')])
    return (
        "# Tools\n\n"
        "You can call these functions, each described by a JSON object with the JSON Schema of its "
        f"parameters:\n\n{described}\n\n"
        f"To call a function, write exactly in this form, once for each call, and then stop:\n\n{example}\n\n"
        "The result comes in the next message. If no function is needed, answer without calling one."
    )


def render_calls(parser: ToolCallParser, calls: Sequence[ParsedCall]) -> str:
    """Return the calls of one turn as the model would have written them."""
    rendered = parser.render_all(calls)
    if rendered is not None:
        return rendered
    fallback = make_tool_parser(FALLBACK_FORMAT).render_all(calls)
    assert fallback is not None
    return fallback

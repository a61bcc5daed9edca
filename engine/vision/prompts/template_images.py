"""How a chat template writes images, found by rendering small conversations with one and without."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from PIL import Image

from greenroom.engine.adapters.prompts.image_writer import ImageMark
from greenroom.engine.adapters.templates.chat_template import TemplateMessage, shows_in_order
from greenroom.engine.adapters.templates.template_probe import TemplateTraits
from greenroom.engine.tokenizer.tokenizer import ChatTokenizer
from greenroom.engine.vision.prompts.image_processor import ImageProcessor

Render = Callable[[Sequence[TemplateMessage]], str | None]

_PICTURE = Image.new("RGB", (320, 320), (127, 127, 127))
"""Shown to the processor when a model is opened; large enough for more than one token."""


def find_image_mark(
    render: Render, traits: TemplateTraits, tokenizer: ChatTokenizer, processor: ImageProcessor
) -> ImageMark:
    """Return how images are written for a model.

    Raises:
        ValueError: Neither its template nor its processor tells.
    """
    text = _written(render)
    candidates = _candidates(text, tokenizer, processor)
    marker = next((each for each in candidates if _is_replaced(each, processor)), None)
    if marker is None:
        raise ValueError("its processor replaces nothing that its template writes for images")
    if marker not in text:
        return ImageMark(marker, marker)
    roles = [role for role, turns in _turns(traits).items() if _takes(render, turns, marker)]
    return ImageMark(text, marker, frozenset(roles))


def reserved_words(mark: ImageMark, processor: ImageProcessor, tokenizer: ChatTokenizer) -> tuple[str, ...]:
    """Return what only the template may write of images: the marker, and the tokens that take its place."""
    own = set(processor.process(_PICTURE, mark.marker, b"").written.tokens)
    return (mark.marker, *(token for token, ident in tokenizer.added_tokens.items() if ident in own))


def _written(render: Render) -> str:
    """Return what a template writes for an image of a user."""
    before, after = {"type": "text", "text": "zqbefore"}, {"type": "text", "text": "zqafter"}
    shown = render([{"role": "user", "content": [before, _IMAGE, after]}]) or ""
    bare = render([{"role": "user", "content": [before, after]}]) or ""
    head = _common_beginning(shown, bare)
    tail = _common_beginning(shown[: head - 1 : -1] if head else shown[::-1], bare[::-1][: len(bare) - head])
    return shown[head : len(shown) - tail]


def _common_beginning(one: str, other: str) -> int:
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _candidates(text: str, tokenizer: ChatTokenizer, processor: ImageProcessor) -> list[str]:
    """Return what may be the marker: as the processor names it, then tokens that the template writes."""
    tokens = sorted((token for token in tokenizer.added_tokens if token in text), key=text.index)
    named = [name for name in processor.markers if name in text]
    rest = [text.strip()] if text.strip() else [*processor.markers, "<image>"]
    return list(dict.fromkeys([*named, *tokens, *rest]))


def _is_replaced(marker: str, processor: ImageProcessor) -> bool:
    """Return whether the processor puts the tokens of an image in a marker's place."""
    try:
        image = processor.process(_PICTURE, marker, b"")
    except Exception:  # whatever a processor says of a text without its marker
        return False
    return image.tokens > 1 and bool(image.inputs)


def _takes(render: Render, turns: Sequence[TemplateMessage], marker: str) -> bool:
    """Return whether an image is shown where it stands."""
    rendered = render(turns)
    return shows_in_order(rendered, "zqbefore", marker, "zqafter") and (rendered or "").count(marker) == 1


def _turns(traits: TemplateTraits) -> dict[str, list[TemplateMessage]]:
    """Return for each role a conversation in which it shows an image."""
    content = [{"type": "text", "text": "zqbefore"}, _IMAGE, {"type": "text", "text": "zqafter"}]
    user: TemplateMessage = {"role": "user", "content": "zquser"}
    turns: dict[str, list[TemplateMessage]] = {"user": [{"role": "user", "content": content}]}
    if traits.system:
        turns["system"] = [{"role": "system", "content": content}, user]
    if traits.tool_calls and traits.tool_results:
        arguments: Any = "{}" if traits.arguments_as_text else {}
        function = {"name": "zqtool", "arguments": arguments}
        call = {"id": "zqcall001", "type": "function", "function": function}
        called = {"role": "assistant", "content": None if traits.calls_without_content else ""}
        result = {"role": "tool", "content": content, "tool_call_id": "zqcall001", "name": "zqtool"}
        turns["tool"] = [user, {**called, "tool_calls": [call]}, result]
    return turns


_IMAGE: TemplateMessage = {"type": "image"}

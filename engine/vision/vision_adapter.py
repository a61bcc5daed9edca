"""The adapter of a vision model: conversations with images in, tokens and arrays out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from PIL import Image

from greenroom.engine.adapters.adapter import Adapter, make_adapter
from greenroom.engine.adapters.conversation import Medium
from greenroom.engine.adapters.placeholder_expander import Placeholder, PlaceholderExpander
from greenroom.engine.adapters.template_probe import (
    TemplateMessage,
    TemplateTraits,
    probe_template,
    shows_in_order,
    template_renderer,
)
from greenroom.engine.catalog.load_failures import failure_reason
from greenroom.engine.media.images import ImageLimits
from greenroom.engine.media.recordings import Samples
from greenroom.engine.resources.device_errors import is_device_error
from greenroom.engine.resources.preparation_steps import PreparationSteps, run_to_end
from greenroom.engine.tokenizer.tokenizer import ChatTokenizer
from greenroom.engine.vision.image_processor import ImageProcessor, ProcessedImage
from greenroom.engine.vision.image_reader import ImageReader
from greenroom.engine.vision.load_image_processor import load_image_processor
from greenroom.schemas.messages.generation import GenerationParameters
from greenroom.schemas.messages.prepared_input import PreparedImage, PreparedPrompt
from greenroom.schemas.messages.requests import InferenceRequest, RawInput
from greenroom.schemas.models.capabilities import CapabilityRecord
from greenroom.schemas.problems import ProblemError, invalid, load_failed
from greenroom.schemas.protocols.model_protocol import PromptContents
from greenroom.schemas.settings.settings import Settings


class VisionAdapter(Adapter):
    """An adapter whose conversations may hold images, sounds and documents; the rest is as for text.

    Args:
        image_tokens: Ids of image tokens, which raw prompts must not contain.
        greedy: True to answer prompts with images at temperature 0, unless the request or the operator sets
            a temperature.
        arguments: Arguments of `Adapter`.
    """

    takes_images = True

    def __init__(
        self,
        *arguments: Any,
        reader: ImageReader,
        image_tokens: frozenset[int],
        greedy: bool = True,
        sample: ProcessedImage | None = None,
        **named: Any,
    ) -> None:
        super().__init__(*arguments, **named)
        self._sample = sample
        self._reader = reader
        self._image_tokens = image_tokens
        self._greedy_images = greedy

    def pop_sample(self) -> ProcessedImage | None:
        sample, self._sample = self._sample, None
        return sample

    def prepare_input(self, request: InferenceRequest) -> PreparedPrompt:
        """Run `prepare_in_steps` to its end. Raises ProblemError: 400: the request is invalid, or the model's
        template cannot render it.
        """
        return run_to_end(self.prepare_in_steps(request))

    def prepare_in_steps(self, request: InferenceRequest) -> PreparationSteps[PreparedPrompt]:
        """Prepare a request; yields between images, and while sounds are decoded and pages rendered. Raises
        ProblemError (400): the request is invalid, or the model's template cannot render it.
        """
        if isinstance(request.input, RawInput):
            return super().prepare_input(request)
        parameters = self._parameters(request)
        chat, appendix = self._read_chat(request)
        read = yield from self._reader.read_in_steps(chat, request.client, request.cache_salt)
        return self._with_adapter(request, self._prepare_chat(request, parameters, read, appendix))

    def render_prompt(self, request: InferenceRequest) -> PromptContents:
        """Run `render_in_steps` to its end. Raises ProblemError (400): the request is invalid, or the model's
        template cannot render it.
        """
        return run_to_end(self.render_in_steps(request))

    def render_in_steps(self, request: InferenceRequest) -> PreparationSteps[PromptContents]:
        """Return a request's prompt as the model reads it; yields as `prepare_in_steps` does. Raises
        ProblemError (400): the request is invalid, or the model's template cannot render it.
        """
        if isinstance(request.input, RawInput):
            return super().render_prompt(request)
        chat, _ = self._read_chat(request)
        read = yield from self._reader.read_in_steps(chat, request.client, request.cache_salt)
        return self._render_read(request, read)

    def _prepare_raw(
        self, request: InferenceRequest, raw: RawInput, parameters: GenerationParameters
    ) -> PreparedPrompt:
        prepared = super()._prepare_raw(request, raw, parameters)
        if not self._image_tokens.isdisjoint(prepared.tokens):
            detail = f"`{raw.param}` holds tokens that stand for an image; only conversations hold images."
            raise invalid(detail, raw.param)
        return prepared

    def _about(
        self, images: tuple[PreparedImage, ...], request: InferenceRequest, parameters: GenerationParameters
    ) -> GenerationParameters:
        named = {*self.configured, *request.defaults, *request.overrides}
        if not self._greedy_images or "temperature" in named or all(image.is_sound for image in images):
            return parameters
        # Describing an image needs no creativity; the makers' temperature is for writing.
        return attrs.evolve(parameters, temperature=0.0)


def open_vision_adapter(
    folder: Path,
    record: CapabilityRecord,
    tokenizer: ChatTokenizer,
    settings: Settings,
    system_prompt: str = "",
    name: str = "",
) -> Adapter:
    """Return a vision model's adapter; needs no weights. Runs on the thread that prepares its prompts.

    Args:
        tokenizer: The folder's tokenizer, not used by anything else yet.

    Raises:
        ProblemError: 503 `load_failed`.
    """
    processor = load_image_processor(folder, record.architecture, tokenizer, settings.trust_remote_code, name)
    try:
        return _make(processor, record, tokenizer, settings, system_prompt)
    except ValueError as error:
        raise ProblemError(load_failed(name or folder.name, f"{error}.")) from error


def image_limits(record: CapabilityRecord, settings: Settings) -> ImageLimits:
    if not record.multi_image:
        return ImageLimits(images=1, pages=1, single=True)
    return ImageLimits(images=settings.images_max_count, pages=settings.images_max_pages)


def _make(
    processor: ImageProcessor,
    record: CapabilityRecord,
    tokenizer: ChatTokenizer,
    settings: Settings,
    system_prompt: str,
) -> Adapter:
    traits = probe_template(tokenizer)
    placeholders = find_placeholders(template_renderer(tokenizer, traits), traits, tokenizer, processor)
    samples = process_samples(placeholders, processor)
    reserved = reserved_words(placeholders, samples, tokenizer)
    tokenizer.reserve(reserved)
    added = tokenizer.added_tokens
    markers = {medium: mark.marker for medium, mark in placeholders.items()}
    make = partial(
        VisionAdapter,
        images=PlaceholderExpander(tokenizer, placeholders),
        reader=ImageReader(processor, markers, image_limits(record, settings), settings.images_history),
        image_tokens=frozenset(added[word] for word in reserved if word in added),
        greedy=settings.images_greedy,
        sample=samples["image"],
    )
    return make_adapter(record, tokenizer, settings, system_prompt, make)


Render = Callable[[Sequence[TemplateMessage]], str | None]

_SIDE = 320  # Side in pixels of the image that probes the processor: large enough for more than one token
_SECONDS = 1


def find_placeholders(
    render: Render, traits: TemplateTraits, tokenizer: ChatTokenizer, processor: ImageProcessor
) -> dict[Medium, Placeholder]:
    """Return the placeholders of images, and of sounds if the model takes audio. Raises ValueError: neither
    the template nor the processor reveals the image placeholder.
    """
    finder = _Finder(render, traits, tokenizer, processor, "image")
    found = finder.find()
    if found is None:
        raise ValueError(finder.reason)
    heard = _Finder(render, traits, tokenizer, processor, "audio").find() if processor.audio_limits else None
    placeholders: dict[Medium, Placeholder] = {"image": found}
    return placeholders if heard is None else {**placeholders, "audio": heard}


def process_samples(
    placeholders: Mapping[Medium, Placeholder], processor: ImageProcessor
) -> Mapping[Medium, ProcessedImage]:
    """Return the processed form of a gray image, and of silence if the model takes audio."""
    return {
        medium: processor.process(_sample(medium, processor), placeholder.marker, b"")
        for medium, placeholder in placeholders.items()
    }


def reserved_words(
    placeholders: Mapping[Medium, Placeholder],
    samples: Mapping[Medium, ProcessedImage],
    tokenizer: ChatTokenizer,
) -> tuple[str, ...]:
    """Return the strings that only templates may write: the markers and the tokens that replace them."""
    words: list[str] = []
    for medium, placeholder in placeholders.items():
        own = set(samples[medium].written.tokens)
        words += (
            placeholder.marker,
            *(token for token, ident in tokenizer.added_tokens.items() if ident in own),
        )
    return tuple(dict.fromkeys(words))


def _sample(medium: Medium, processor: ImageProcessor) -> Image.Image | Samples:
    if medium == "image":
        return Image.new("RGB", (_SIDE, _SIDE), (127, 127, 127))
    rate = processor.audio_limits.rate if processor.audio_limits is not None else 1
    return np.zeros(_SECONDS * rate, np.float32)


def _written(render: Render, medium: Medium) -> str:
    before, after = {"type": "text", "text": "zqbefore"}, {"type": "text", "text": "zqafter"}
    shown = render([{"role": "user", "content": [before, {"type": medium}, after]}]) or ""
    bare = render([{"role": "user", "content": [before, after]}]) or ""
    head = _common_beginning(shown, bare)
    tail = _common_beginning(shown[: head - 1 : -1] if head else shown[::-1], bare[::-1][: len(bare) - head])
    return shown[head : len(shown) - tail]


def _common_beginning(one: str, other: str) -> int:
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


class _Finder:
    def __init__(
        self,
        render: Render,
        traits: TemplateTraits,
        tokenizer: ChatTokenizer,
        processor: ImageProcessor,
        medium: Medium,
    ) -> None:
        self._render = render
        self._traits = traits
        self._tokenizer = tokenizer
        self._processor = processor
        self._medium = medium
        self._failures: list[str] = []

    @property
    def reason(self) -> str:
        """The reason why no placeholder was found: the processor's error for the likeliest marker."""
        if not self._failures:
            return "its processor replaces nothing that its template writes for images"
        return f"its processor fails with an image ({self._failures[0]})"

    def find(self) -> Placeholder | None:
        """Return the placeholder; None if neither template nor processor reveals it."""
        text = _written(self._render, self._medium)
        marker = next(filter(self._is_replaced, self._candidates(text)), None)
        if marker is not None and marker in text and not self._is_all(text, marker):
            marker = text.strip()  # The processor also replaces the text around the marker.
        if marker is None or marker not in text:
            return Placeholder(marker, marker) if marker else None
        turns = _turns(self._traits, self._medium)
        roles = [role for role, messages in turns.items() if self._takes(messages, marker)]
        return Placeholder(text, marker, frozenset(roles))

    def _candidates(self, text: str) -> list[str]:
        tokens = sorted((token for token in self._tokenizer.added_tokens if token in text), key=text.index)
        markers = self._processor.markers(self._medium)
        written = [*(name for name in markers if name in text), *tokens, text.strip()]
        return [each for each in dict.fromkeys([*written, *markers, f"<{self._medium}>"]) if each]

    def _is_replaced(self, marker: str) -> bool:
        try:
            made = self._processor.process(_sample(self._medium, self._processor), marker, b"")
        except Exception as error:  # A processor may raise anything for a text without its marker.
            if is_device_error(error):
                raise
            reason = failure_reason(error, self._tokenizer.folder)
            self._failures.append(f"{type(error).__name__}: {reason}")
            return False
        return made.tokens > 1 and bool(made.inputs)

    def _is_all(self, text: str, marker: str) -> bool:
        whole = text.strip()
        if whole == marker or not self._is_replaced(whole):
            return True
        rest = whole.replace(marker, self._replaced(marker), 1)
        return "".join(rest.split()) == "".join(self._replaced(whole).split())

    def _replaced(self, marker: str) -> str:
        made = self._processor.process(_sample(self._medium, self._processor), marker, b"").written
        return f"{made.before}{self._tokenizer.decode(made.tokens)}{made.behind}"

    def _takes(self, messages: Sequence[TemplateMessage], marker: str) -> bool:
        """Return whether the template renders the image once, in its place between the texts."""
        rendered = self._render(messages)
        shown = shows_in_order(rendered, "zqbefore", marker, "zqafter")
        return shown and (rendered or "").count(marker) == 1


def _turns(traits: TemplateTraits, medium: Medium) -> dict[str, list[TemplateMessage]]:
    content = [{"type": "text", "text": "zqbefore"}, {"type": medium}, {"type": "text", "text": "zqafter"}]
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

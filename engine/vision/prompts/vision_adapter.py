"""The adapter of a vision model: conversations with images in, tokens and arrays out."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import attrs

from greenroom.engine.adapters.adapter import Adapter
from greenroom.engine.adapters.make_adapter import make_adapter
from greenroom.engine.adapters.prompts.placeholder_expander import PlaceholderExpander
from greenroom.engine.adapters.templates.template_probe import probe_template, template_renderer
from greenroom.engine.fairness.preparation_steps import PreparationSteps, run_to_end
from greenroom.engine.media.images.limits import ImageLimits
from greenroom.engine.tokenizer.tokenizer import ChatTokenizer
from greenroom.engine.vision.prompts.image_processor import ImageProcessor, ProcessedImage
from greenroom.engine.vision.prompts.image_reader import ImageReader
from greenroom.engine.vision.prompts.load_image_processor import load_image_processor
from greenroom.engine.vision.prompts.placeholders import find_placeholders, process_samples, reserved_words
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
        reader: Processes a request's media.
        image_tokens: Ids of image tokens, which raw prompts must not contain.
        greedy: True to answer prompts with images at temperature 0, unless the request or the operator sets
            a temperature.
        sample: Processed image that checks the model while it loads.
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
        """Return the sample image and drop it; None on later calls."""
        sample, self._sample = self._sample, None
        return sample

    def prepare_input(self, request: InferenceRequest) -> PreparedPrompt:
        """Run `prepare_in_steps` to its end.

        Raises:
            ProblemError: 400: the request is invalid, or the model's template cannot render it.
        """
        return run_to_end(self.prepare_in_steps(request))

    def prepare_in_steps(self, request: InferenceRequest) -> PreparationSteps[PreparedPrompt]:
        """Prepare a request; yields between images, and while sounds are decoded and pages rendered.

        Raises:
            ProblemError: 400: the request is invalid, or the model's template cannot render it.
        """
        if isinstance(request.input, RawInput):
            return super().prepare_input(request)
        parameters = self._parameters(request)
        chat, appendix = self._read_chat(request)
        read = yield from self._reader.read_in_steps(chat, request.client, request.cache_salt)
        return self._prepare_chat(request, parameters, read, appendix)

    def render_prompt(self, request: InferenceRequest) -> PromptContents:
        """Run `render_in_steps` to its end.

        Raises:
            ProblemError: 400: the request is invalid, or the model's template cannot render it.
        """
        return run_to_end(self.render_in_steps(request))

    def render_in_steps(self, request: InferenceRequest) -> PreparationSteps[PromptContents]:
        """Return a request's prompt as the model reads it; yields as `prepare_in_steps` does.

        Raises:
            ProblemError: 400: the request is invalid, or the model's template cannot render it.
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
        system_prompt: Default for conversations without a system prompt.
        name: The model's name in errors.

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

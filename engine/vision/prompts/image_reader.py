"""Replacement of a conversation's images, sounds and documents by their processed forms."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import attrs
from PIL import Image

from greenroom.engine.adapters.conversation.rendered_images import Medium, RenderedImage
from greenroom.engine.adapters.image_ids.image_numbers import last_turn
from greenroom.engine.device.device_errors import is_device_error
from greenroom.engine.fairness.preparation_steps import PreparationSteps
from greenroom.engine.media.audio.decoding import decode_recording
from greenroom.engine.media.audio.samples import Samples
from greenroom.engine.media.images.large_images import decode_in_steps
from greenroom.engine.media.images.limits import DETAIL_LOW, ImageLimits
from greenroom.engine.media.images.pdf_pages import DrawingTime, draw_pages
from greenroom.engine.vision.prompts.image_processor import ImageProcessor, ProcessedImage
from greenroom.engine.vision.prompts.media_limits import AudioLimits
from greenroom.engine.vision.prompts.processed_images import ProcessedImages
from greenroom.engine.vision.prompts.selected_media import DOCUMENT_NOT_SHOWN, check_sizes, select_media
from greenroom.schemas.messages.messages import (
    AudioPart,
    ContentPart,
    DocumentPart,
    ImagePart,
    Message,
    TextPart,
    media_of,
)
from greenroom.schemas.messages.requests import ChatInput
from greenroom.schemas.problems import ProblemError, invalid
from greenroom.schemas.settings.images import ImageHistory

_Pages = Sequence[ProcessedImage]


class ImageReader:
    """Processes the media of one model's conversations, on the thread that prepares its prompts.

    Args:
        markers: Text that the processor replaces by tokens, by medium; has audio only if the model takes it.
        history: Policy that selects the images of a conversation to show.
    """

    def __init__(
        self,
        processor: ImageProcessor,
        markers: Mapping[Medium, str],
        limits: ImageLimits,
        history: ImageHistory = "all",
    ) -> None:
        self._processor = processor
        self._markers = markers
        self._limits = limits
        self._history = history
        self._kept = ProcessedImages()

    def read_in_steps(self, chat: ChatInput, client: str = "", salt: str = "") -> PreparationSteps[ChatInput]:
        """Return the conversation with its images, sounds and documents' pages processed.

        Yields between images, and while large ones and sounds are decoded and pages are rendered, so that
        other requests go on.

        Args:
            client: The client's name; clients take fair turns.
            salt: Name of those who share what is computed of their files; empty for all.

        Raises:
            ProblemError: 400 that names an invalid image, or the first of too many.
        """
        if not any(message.media for message in chat.messages):
            return chat
        takes_audio = "audio" in self._markers
        messages = select_media(chat.messages, self._history, self._limits, takes_audio=takes_audio)
        check_sizes(messages, self._limits)
        documents = yield from self._read_documents(messages, salt)
        numbers = itertools.count()
        read: list[Message] = []
        for message in messages:
            read.append((yield from self._read_message(message, documents, numbers, client, salt)))
        return attrs.evolve(chat, messages=tuple(read))

    def _read_message(
        self,
        message: Message,
        documents: Mapping[int, _Pages],
        numbers: Iterator[int],
        client: str,
        salt: str,
    ) -> PreparationSteps[Message]:
        parts: list[ContentPart] = []
        for part in message.content:
            match part:
                case ImagePart():
                    seen = yield from self._read_image(part, client, salt)
                    parts.append(_shown(seen, part.param, numbers))
                    yield None
                case AudioPart():
                    heard = yield from self._read_sound(part, client, salt)
                    parts.append(_shown(heard, part.param, numbers, "audio"))
                    yield None
                case DocumentPart() if id(part) in documents:
                    parts += [TextPart(f"[Document: {part.name}]\n")] if part.name else []
                    parts += (_shown(page, part.param, numbers) for page in documents[id(part)])
                case DocumentPart():
                    parts.append(DOCUMENT_NOT_SHOWN)
                case _:
                    parts.append(part)
        return attrs.evolve(message, content=tuple(parts))

    def _read_image(self, part: ImagePart, client: str, salt: str) -> PreparationSteps[ProcessedImage]:
        rough = part.detail == "low"
        digest = self._digest(part.digest, "low" if rough else "", salt)
        if kept := self._kept.find([digest]):
            return kept[0]
        image = yield from decode_in_steps(
            part.data, self._limits, resolution=self._processor.resolution, param=part.param, client=client
        )
        if rough:
            image.thumbnail((DETAIL_LOW, DETAIL_LOW))
        return self._kept.get(digest, partial(self._process_image, image, digest, part.param))

    def _read_sound(self, part: AudioPart, client: str, salt: str) -> PreparationSteps[ProcessedImage]:
        audio_limits = self._processor.audio_limits
        assert audio_limits is not None, "there is no marker otherwise"
        digest = self._digest(hashlib.sha256(part.data).digest(), "sound", salt)
        if kept := self._kept.find([digest]):
            return kept[0]
        samples = yield from decode_sound(part, audio_limits, client)
        words = f"{len(samples) / audio_limits.rate:.2f} seconds"
        process = partial(self._process, samples, "audio", digest, part.param, words)
        return self._kept.get(digest, process)

    def _read_documents(
        self, messages: Sequence[Message], salt: str
    ) -> PreparationSteps[Mapping[int, _Pages]]:
        """Return the pages of documents, by the `id` of their parts.

        If there are too many pages, the oldest documents are dropped; those of the current turn must all fit.
        """
        parts = [part for part in media_of(messages) if isinstance(part, DocumentPart)]
        new = {id(part) for part in media_of(last_turn(messages))}
        documents: dict[int, _Pages] = {}
        left = DrawingTime()
        room = self._limits.pages
        for part in reversed(parts):
            try:
                pages = yield from self._read_pages(part, attrs.evolve(self._limits, pages=room), left, salt)
            except ProblemError:
                if id(part) in new or not documents:
                    raise
                break
            documents[id(part)] = pages
            room -= len(pages)
        return documents

    def _read_pages(
        self, part: DocumentPart, limits: ImageLimits, left: DrawingTime, salt: str
    ) -> PreparationSteps[_Pages]:
        file = hashlib.sha256(part.data).digest()

        def digest_of(page: int) -> bytes:
            return self._digest(file, f"page {page}", salt)

        kept = self._kept.find(map(digest_of, range(limits.pages)))
        if kept and kept[0].of == len(kept):
            return kept
        drawn = yield from draw_pages(part.data, limits, left=left, param=part.param)

        def process(page: int) -> ProcessedImage:
            made = self._process_image(drawn[page], digest_of(page), part.param)
            return attrs.evolve(made, of=len(drawn))

        pages: list[ProcessedImage] = []
        for page in range(len(drawn)):
            yield None
            pages.append(self._kept.get(digest_of(page), partial(process, page)))
        return pages

    def _process_image(self, image: Image.Image, digest: bytes, param: str | None) -> ProcessedImage:
        words = f"{image.width:,} x {image.height:,} pixels"
        return self._process(image, "image", digest, param, words)

    def _process(
        self, given: Image.Image | Samples, medium: Medium, digest: bytes, param: str | None, words: str
    ) -> ProcessedImage:
        try:
            return self._processor.process(given, self._markers[medium], digest)
        except ProblemError:
            raise
        except Exception as error:  # Third-party code on a client's file may raise anything.
            if is_device_error(error):  # Some processors compute with MLX.
                raise
            named = f"`{param}`" if param else f"The {medium}"
            reason = str(error).strip().splitlines()[:1] or [type(error).__name__]
            detail = f"{named} ({words}) cannot be given to this model: {reason[0][:200]}."
            raise invalid(detail, param, f"invalid_{medium}") from None

    def _digest(self, file: bytes, way: str, salt: str) -> bytes:
        """Return the cache key of a file: it depends on its content, the processor and the mode of reading.

        Args:
            file: SHA-256 of the file.
            way: Mode of reading, such as "low" or a page number.
            salt: Name of those who share the result; empty for all.
        """
        owner = hashlib.sha256(salt.encode()).digest() if salt else b""
        return hashlib.sha256(owner + file + self._processor.fingerprint + way.encode()).digest()


def _shown(
    image: ProcessedImage, param: str | None, numbers: Iterator[int], medium: Medium = "image"
) -> RenderedImage:
    number = next(numbers)
    return RenderedImage(param=param, number=number, tokens=image.tokens, processed=image, medium=medium)


def decode_sound(part: AudioPart, audio_limits: AudioLimits, client: str = "") -> PreparationSteps[Samples]:
    """Return a sound's samples at the model's rate; yields while it decodes.

    Raises:
        ProblemError: 400: the sound cannot be decoded, or is longer than the model takes.
    """
    param = part.param or "messages"
    most = int(audio_limits.seconds * audio_limits.rate)
    samples = (yield from decode_recording(part.data, audio_limits.rate, most + 1, param, client)).samples
    if len(samples) > most:
        detail = f"`{param}` is longer than the {audio_limits.seconds:g} seconds that this model hears."
        raise invalid(detail, param)
    return samples

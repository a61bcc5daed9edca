"""Replacement of a conversation's images, sounds and documents by their processed forms."""

from __future__ import annotations

import hashlib
import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

import attrs
from PIL import Image

from greenroom.engine.adapters.conversation import Medium, RenderedImage
from greenroom.engine.adapters.image_ids import last_turn
from greenroom.engine.media.decoding_process import TimeLeft
from greenroom.engine.media.images import DETAIL_LOW, ImageLimits
from greenroom.engine.media.large_images import decode_in_steps
from greenroom.engine.media.pdf_pages import SECONDS, draw_pages
from greenroom.engine.media.recording_windows import decode_recording
from greenroom.engine.media.recordings import Samples
from greenroom.engine.resources.device_errors import is_device_error
from greenroom.engine.resources.preparation_steps import PreparationSteps
from greenroom.engine.vision.image_processor import AudioLimits, ImageProcessor, ProcessedImage
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
from greenroom.schemas.settings.setting_groups import ImageHistory

_Pages = Sequence[ProcessedImage]


class ImageReader:
    """Processes the media of one model's conversations, on the thread that prepares its prompts. `markers`:
    text that the processor replaces by tokens, by medium; has audio only if the model takes it.
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
        left = TimeLeft(SECONDS)
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
        self, part: DocumentPart, limits: ImageLimits, left: TimeLeft, salt: str
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
    """Return a sound's samples at the model's rate; yields while it decodes. Raises ProblemError (400): the
    sound cannot be decoded, or is longer than the model takes.
    """
    param = part.param or "messages"
    most = int(audio_limits.seconds * audio_limits.rate)
    samples = (yield from decode_recording(part.data, audio_limits.rate, most + 1, param, client)).samples
    if len(samples) > most:
        detail = f"`{param}` is longer than the {audio_limits.seconds:g} seconds that this model hears."
        raise invalid(detail, param)
    return samples


NOT_SHOWN = TextPart("[An earlier image that is not shown again]")  # Text that replaces a dropped image
RECORDING = TextPart("[Recording]")
DOCUMENT_NOT_SHOWN = TextPart("[An earlier document that is not shown again]")


def select_media(
    messages: Sequence[Message], history: ImageHistory, limits: ImageLimits, *, takes_audio: bool = False
) -> tuple[Message, ...]:
    """Return the conversation with at most as many images and recordings as the limits allow.

    With `all` the newest ones are kept. The oldest are dropped several at a time, so that most prompts share
    a prefix with the one before. With `last` a user's message with images is answered by itself: of earlier
    messages only system messages remain; otherwise earlier messages lose their images.

    Args:
        takes_audio: True to keep recordings.

    Raises:
        ProblemError (400): the current turn has too many, or a recording for a model that takes no audio.
    """
    if not takes_audio:
        messages = _without_sounds(messages)
    if history == "last":
        messages = _last_alone(messages)
    for kind, words, note in ((ImagePart, "images", NOT_SHOWN), (AudioPart, "recordings", RECORDING)):
        messages = _newest(messages, kind, words, note, limits)
    return tuple(messages)


def _newest(
    messages: Sequence[Message], kind: type, words: str, note: TextPart, limits: ImageLimits
) -> Sequence[Message]:
    most = limits.images
    new = [part for message in last_turn(messages) for part in message.content if isinstance(part, kind)]
    if len(new) > most:
        param = getattr(new[most], "param", None) or "messages"
        reason = f"a request may show {most} (setting images_max_count)"
        if limits.single:
            reason = "this model takes one at a time"
        detail = f"There are {len(new)} {words}, but {reason}."
        raise invalid(detail, param, f"too_many_{words}")
    count = sum(isinstance(part, kind) for message in messages for part in message.content)
    step = max(1, most // 2)
    excess = -(-max(0, count - most) // step) * step
    return _without_first(messages, kind, note, min(excess, count - len(new)))


def check_sizes(messages: Sequence[Message], limits: ImageLimits) -> None:
    """Reject images, documents and recordings whose files are too large in total. Raises ProblemError: 400
    that names the first part over the limit.
    """
    total = 0
    for part in media_of(messages):
        total += len(part.data)
        if total > limits.bytes_together:
            most = limits.bytes_together >> 20
            detail = f"Images, documents and recordings have more than {most} MB together."
            raise invalid(detail, part.param or "messages", "image_too_large")


def _without_sounds(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages with a note for each recording; reject recordings in the last turn."""
    for part in media_of(last_turn(messages)):
        if isinstance(part, AudioPart):
            named = f"`{part.param}`" if part.param else "The last message"
            detail = f"{named} is a recording, but this is a model for text and images: it does not hear."
            raise invalid(detail, part.param or "messages", "unsupported_content")
    return _with_notes(messages, {AudioPart: RECORDING})


def _last_alone(messages: Sequence[Message]) -> Sequence[Message]:
    asked = max((at for at, message in enumerate(messages) if message.role == "user"), default=0)
    if any(not isinstance(part, AudioPart) for part in messages[asked].media):
        system = (message for message in messages[:asked] if message.role == "system")
        return (*system, *messages[asked:])
    before = _with_notes(messages[:asked], {ImagePart: NOT_SHOWN, DocumentPart: DOCUMENT_NOT_SHOWN})
    return (*before, *messages[asked:])


def _with_notes(messages: Sequence[Message], notes: Mapping[type, TextPart]) -> list[Message]:
    """Return the messages with a note in place of each part of some types."""
    return [
        attrs.evolve(message, content=tuple(notes.get(type(part), part) for part in message.content))
        for message in messages
    ]


def _without_first(messages: Sequence[Message], kind: type, note: TextPart, count: int) -> Sequence[Message]:
    if not count:
        return messages
    left: list[Message] = []
    for message in messages:
        parts: list[ContentPart] = []
        for part in message.content:
            hidden = count > 0 and isinstance(part, kind)
            count -= hidden
            parts.append(note if hidden else part)
        left.append(attrs.evolve(message, content=tuple(parts)))
    return left


MAX_BYTES = 256 * 1024 * 1024  # Default size limit in bytes: some twenty photographs of a megapixel


class ProcessedImages:
    """An LRU cache of one model's processed images, used by the thread that prepares its prompts.
    `max_bytes`: size limit of the arrays in bytes; an image above it is not cached.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._kept: OrderedDict[bytes, ProcessedImage] = OrderedDict()
        self.nbytes = 0

    def find(self, digests: Iterable[bytes]) -> list[ProcessedImage]:
        """Return the cached images for `digests`, up to the first that is missing."""
        found = []
        for digest in digests:
            if digest not in self._kept:
                break
            found.append(self._kept[digest])
            self._kept.move_to_end(digest)
        return found

    def get(self, digest: bytes, process: Callable[[], ProcessedImage]) -> ProcessedImage:
        kept = self._kept.get(digest)
        if kept is not None:
            self._kept.move_to_end(digest)
            return kept
        made = process()
        if made.nbytes <= self._max_bytes:
            self._kept[digest] = made
            self.nbytes += made.nbytes
            while self.nbytes > self._max_bytes:
                _, oldest = self._kept.popitem(last=False)
                self.nbytes -= oldest.nbytes
        return made

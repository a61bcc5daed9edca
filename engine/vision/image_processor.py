"""A model's own processor, as loaded by mlx-vlm: pixels or samples in, tokens and arrays out."""

from __future__ import annotations

import inspect
import threading
import weakref
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
from PIL import Image

from greenroom.engine.adapters.conversation import Medium
from greenroom.engine.adapters.placeholder_expander import ImageTokens
from greenroom.engine.media.images import ResolutionLimit
from greenroom.engine.media.recordings import Samples
from greenroom.engine.resources.device_memory import main_memory
from greenroom.engine.tokenizer.tokenizer import ChatTokenizer
from greenroom.schemas.problems import Problem, ProblemError

if TYPE_CHECKING:
    import numpy as np


_OF_THE_TEXT = frozenset(
    {
        "input_ids",
        "attention_mask",
        "token_type_ids",
        "mm_token_type_ids",
        "labels",
        "sft_format",
        "seq_lens",
        "num_image_tokens",
    }
)
"""Outputs of processors that describe the text, not the image."""

_BY_TOKEN = frozenset({"images_seq_mask"})
"""Outputs with one value per token; the model takes the slice of its image."""

_PLACES = frozenset({"image_bound", "image_input_idx"})
"""Outputs that hold the indexes of the image's tokens in the prompt."""

_TAIL = "\n"
"""Text after the marker for processors that drop the last token (DeepSeek-OCR's `inference_mode`)."""

_MARKERS: Mapping[Medium, tuple[str, ...]] = {
    "image": ("boi_token", "image_token", "image_placeholder"),
    "audio": ("audio_token", "boa_token"),
}
"""Attributes of processors that hold a marker, by medium."""


@attrs.frozen
class ProcessedImage:
    """The processor's output for one image or sound.

    Args:
        digest: SHA-256 over the file and everything else that determines the output.
        written: Tokens that stand for it, with the text around them.
        tokens: Number of those tokens that take an embedding from it.
        inputs: NumPy arrays by the name of the model's argument.
        of: Number of pages in its document; 1 for an image that is no page.
    """

    digest: bytes
    written: ImageTokens
    tokens: int
    inputs: Mapping[str, Any] = attrs.field(eq=False, repr=False)
    of: int = 1

    @property
    def nbytes(self) -> int:
        return size_of(list(self.inputs.values()))[1]


class ImageProcessor:
    """Processes images and sounds one by one, on the thread that prepares prompts.

    Args:
        takes_audio: True if the model has an audio tower.

    Attributes:
        resolution: Size up to which an image keeps all its pixels.
        audio_limits: Audio limits; None if the model takes no audio.
    """

    def __init__(
        self, processor: Any, tokenizer: ChatTokenizer, fingerprint: bytes = b"", *, takes_audio: bool = False
    ) -> None:
        self.fingerprint = fingerprint
        self.resolution = resolution_limit(getattr(processor, "image_processor", None))
        self.audio_limits = audio_limits(processor) if takes_audio else None
        self._processor = processor
        self._tokenizer = tokenizer
        self._tail = _TAIL if "inference_mode" in call_parameters(processor) else ""
        self._added = {
            ident for token, ident in tokenizer.added_tokens.items() if token.strip() and not token.isspace()
        }

    def markers(self, medium: Medium) -> tuple[str, ...]:
        """Return the processor's markers for a medium, the likeliest first."""
        values = (getattr(self._processor, name, None) for name in _MARKERS[medium])
        return tuple(str(value) for value in values if value)

    def process(self, given: Image.Image | Samples, marker: str, digest: bytes) -> ProcessedImage:
        """Return the processed form of an image or a sound: its tokens and arrays. Raises ValueError: the
        processor writes no usable tokens for it.
        """
        seen = isinstance(given, Image.Image)
        made = self._prepare(marker + self._tail, {"images": [given]} if seen else {"audio": [given]})
        ids = _flat(made["input_ids"])
        if min(ids) < 0:
            raise ValueError(f"it writes {min(ids)} for an image, which is no token")
        written, first = self._written(ids)
        span = slice(first, first + len(written.tokens))
        inputs = HELD.hold(
            {
                name: _of_span(name, to_numpy(value), span)
                for name, value in made.items()
                if name not in _OF_THE_TEXT
            }
        )
        return ProcessedImage(
            digest, written, self._count(written.tokens, "image" if seen else "audio"), inputs
        )

    def _prepare(self, marker: str, media: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the output of mlx-vlm's own preparation, without its copies into MLX memory and back."""
        from mlx_vlm import utils
        from mlx_vlm.models.base import BaseImageProcessor

        library: Any = utils
        if isinstance(getattr(self._processor, "image_processor", None), BaseImageProcessor):
            made = library.prepare_inputs(self._processor, prompts=marker, add_special_tokens=False, **media)
        else:
            media = {"images": None, "audio": None, **media}
            made = dict(library.process_inputs(self._processor, marker, add_special_tokens=False, **media))
            if "images" in made:
                made["pixel_values"] = made.pop("images")
        return {name: value for name, value in made.items() if value is not None}

    def _written(self, ids: Sequence[int]) -> tuple[ImageTokens, int]:
        """Return an image's tokens among `ids`, and the index of the first of these tokens."""
        bos = self._tokenizer.added_tokens.get(self._tokenizer.bos_token or "")
        begins = self._tokenizer.beginning or ([] if bos is None else [bos])
        skipped = len(begins) if list(ids[: len(begins)]) == begins else 0
        ids = ids[skipped:]
        own = [at for at, ident in enumerate(ids) if ident in self._added]
        if not own:
            raise ValueError("its processor gives images no tokens of their own")
        first, behind = own[0], own[-1] + 1
        if not self._tokenizer.eos_token_ids.isdisjoint(ids[first:behind]):
            raise ValueError("its processor writes whole turns of a conversation around an image")
        decode = self._tokenizer.decode
        before, after = (decode(part) if part else "" for part in (ids[:first], ids[behind:]))
        after = after.removesuffix(self._tail)
        return ImageTokens(before, tuple(ids[first:behind]), after), skipped + first

    def _count(self, tokens: Sequence[int], medium: Medium) -> int:
        ident: Any = getattr(self._processor, f"{medium}_token_id", None)
        counts = Counter(tokens)
        if counts[ident] > 1:
            return counts[ident]
        # It occurs once if the parts of an image have a token of their own (Llama 4's `<|patch|>`).
        return counts.most_common(1)[0][1]


def call_parameters(processor: Any) -> Collection[str]:
    call = getattr(processor, "process", processor)
    return inspect.signature(call).parameters if callable(call) else ()


def _of_span(name: str, value: Any, span: slice) -> Any:
    """Return an output of the processor with per-token values and indexes relative to `span`."""
    if name in _BY_TOKEN:
        return value[:, span]
    if name in _PLACES:
        return [each - span.start for each in value] if isinstance(value, list) else value - span.start
    return value


def _flat(ids: Any) -> list[int]:
    import numpy as np

    return [int(ident) for ident in np.asarray(to_numpy(ids)).reshape(-1)]


# Conversion of a processor's output between MLX and NumPy, to pass it between threads.
#
# MLX arrays must not move from thread to thread, so the data travels as NumPy arrays. NumPy has no bfloat16.


@attrs.frozen(eq=False)
class BrainFloats:
    """An array of bfloat16 numbers. `bits`: the numbers' bits as an array of uint16."""

    bits: np.ndarray[Any, Any]

    @property
    def nbytes(self) -> int:
        return self.bits.nbytes

    @property
    def size(self) -> int:
        return self.bits.size


def to_numpy(value: Any) -> Any:
    """Return a value without MLX memory; lists of arrays stay lists."""
    import mlx.core as mx
    import numpy as np

    if isinstance(value, mx.array):
        if value.dtype == mx.bfloat16:
            return BrainFloats(np.array(value.view(mx.uint16)))
        return np.array(value)
    if isinstance(value, list) and any(isinstance(item, mx.array) for item in value):
        return [to_numpy(item) for item in value]
    return value


def to_mlx(value: Any) -> Any:
    """Return a value as mlx-vlm's models take it; lists and strings stay as they are."""
    import mlx.core as mx
    import numpy as np

    if isinstance(value, BrainFloats):
        return mx.array(value.bits).view(mx.bfloat16)
    if isinstance(value, list) and any(isinstance(item, np.ndarray | BrainFloats) for item in value):
        return [to_mlx(item) for item in value]
    return value if isinstance(value, list | str) else mx.array(value)


def size_of(value: Any) -> tuple[int, int]:
    """Return a value's number of elements and its bytes."""
    if isinstance(value, list):
        sizes = [size_of(item) for item in value]
        return sum(count for count, _ in sizes), sum(nbytes for _, nbytes in sizes)
    return getattr(value, "size", 1), getattr(value, "nbytes", 0)


_LARGEST_AREA = 16 * 1024 * 1024  # Area in pixels assumed for a processor that states no limit
_LONGEST_SIDE = 16_384
"""Largest side in pixels; a higher `longest_edge` is an area: Qwen's processors use one name for both."""

_LEAST_SIDE = 14
"""Smallest side in pixels, that of a patch; a lower one stands for no limit (GLM-5-Next's is 1)."""

_LONGEST_SOUND = 300.0  # Longest sound in seconds, assumed for a processor that states no limit


@attrs.frozen
class AudioLimits:
    """Audio limits of a model. `rate`: sample rate in Hz; `seconds`: longest sound in seconds."""

    rate: int
    seconds: float


def audio_limits(processor: Any) -> AudioLimits | None:
    """Return a processor's audio limits; None if it takes no audio."""
    extractor = getattr(processor, "feature_extractor", None)
    if extractor is None:
        return None
    tokens, span = (getattr(processor, name, 0) for name in ("audio_seq_length", "audio_ms_per_token"))
    return AudioLimits(getattr(extractor, "sampling_rate", 16_000), tokens * span / 1000 or _LONGEST_SOUND)


def resolution_limit(processor: Any) -> ResolutionLimit:
    """Return the size above which an image processor downscales, as far as its attributes state it."""
    area = getattr(processor, "max_pixels", None)
    if isinstance(area, int) and area > 0:
        return ResolutionLimit(area=area)
    size = getattr(processor, "size", None)
    size = size if isinstance(size, Mapping) else {}
    stated = {side: value for side, value in size.items() if isinstance(value, int) and value >= _LEAST_SIDE}
    longest, height, width = (stated.get(side) for side in ("longest_edge", "height", "width"))
    if longest is not None:
        return ResolutionLimit(area=longest) if longest > _LONGEST_SIDE else ResolutionLimit(longest, longest)
    if height and width and not _looks_closer(processor):
        return ResolutionLimit(width, height)
    return ResolutionLimit(area=_LARGEST_AREA)


def _looks_closer(processor: Any) -> bool:
    """Return whether the processor may cut an image into tiles of its input size."""
    words = ("tile", "crop", "patches", "pinpoints", "pan_and_scan", "splitting")
    return any(value and any(word in name for word in words) for name, value in vars(processor).items())


# A limit on the memory of processed images, over all waiting and running requests of this process.
#
# A photograph that is processed at full size takes 300 MB of arrays for as long as its request lives. The
# engine's memory account does not see queued requests, which could fill the memory.

_SHARE = 0.25  # Limit as a share of the machine's memory


class Arrays(dict[str, Any]):
    """A dict of arrays by name that supports weak references."""


class HeldArrays:
    """Counts the bytes of arrays until they are garbage-collected. Thread-safe. `limit`: limit in bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.RLock()  # A finalizer may run while this thread holds it.
        self.nbytes = 0

    def hold(self, arrays: Mapping[str, Any]) -> Arrays:
        """Return the same arrays, counted until they are freed. Raises ProblemError: 503: other requests hold
        too much; if none hold any, every size is accepted.
        """
        held = Arrays(arrays)
        size = size_of(list(held.values()))[1]
        with self._lock:
            if self.nbytes and self.nbytes + size > self._limit:
                detail = (
                    f"Images of requests that wait or run take {self.nbytes >> 20:,} MB, and this would take "
                    f"{size >> 20:,} MB more; {self._limit >> 20:,} MB are for all together."
                )
                raise ProblemError(Problem(503, "images_waiting", detail, retry_after=2))
            self.nbytes += size
        weakref.finalize(held, self._release, size).atexit = False
        return held

    def _release(self, size: int) -> None:
        with self._lock:
            self.nbytes -= size


HELD = HeldArrays(int(main_memory() * _SHARE))  # Counter shared by all models of the process

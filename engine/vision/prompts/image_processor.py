"""A model's own processor, as loaded by mlx-vlm: pixels or samples in, tokens and arrays out."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import attrs
from PIL import Image

from greenroom.engine.adapters.conversation.rendered_images import Medium
from greenroom.engine.adapters.prompts.placeholder_expander import ImageTokens
from greenroom.engine.media.audio.samples import Samples
from greenroom.engine.tokenizer.tokenizer import ChatTokenizer
from greenroom.engine.vision.prompts.array_budget import HELD
from greenroom.engine.vision.prompts.input_arrays import size_of, to_numpy
from greenroom.engine.vision.prompts.media_limits import audio_limits, resolution_limit

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
        """Size of the arrays in bytes."""
        return size_of(list(self.inputs.values()))[1]


class ImageProcessor:
    """Processes images and sounds one by one, on the thread that prepares prompts.

    Args:
        processor: A processor loaded by mlx-vlm.
        fingerprint: Hash of the processor's configuration.
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
        """Return the processed form of an image or a sound: its tokens and arrays.

        Args:
            given: An image, or samples at the rate of `audio_limits`.
            marker: Text that the processor replaces by its tokens.

        Raises:
            ValueError: The processor writes no usable tokens for it.
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
    """Return the parameter names of the method that mlx-vlm calls on a processor."""
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

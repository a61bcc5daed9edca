"""A model's own processor, as mlx-vlm has it: pixels or samples in, tokens and arrays out."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import attrs
from PIL import Image

from greenroom.engine.adapters.conversation.shown_images import Medium
from greenroom.engine.adapters.prompts.image_writer import ImageTokens
from greenroom.engine.media.audio.samples import Samples
from greenroom.engine.tokenizer.tokenizer import ChatTokenizer
from greenroom.engine.vision.prompts.held_arrays import HELD
from greenroom.engine.vision.prompts.input_arrays import size_of, to_numpy
from greenroom.engine.vision.prompts.senses import hearing_of, sight_limit

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
"""What a processor returns beside what it makes of images."""

_BY_TOKEN = frozenset({"images_seq_mask"})
"""What it returns for every token, of which a model takes the part of its image."""

_PLACES = frozenset({"image_bound", "image_input_idx"})
"""What says where its tokens stand among all of them."""

_TAIL = "\n"
"""Written behind a marker for processors that cut the last token off (DeepSeek-OCR's `inference_mode`)."""

_MARKERS: Mapping[Medium, tuple[str, ...]] = {
    "image": ("boi_token", "image_token", "image_placeholder"),
    "audio": ("audio_token", "boa_token"),
}
"""Attributes of processors."""


@attrs.frozen
class ProcessedImage:
    """What a model's processor has made of an image or a sound, alone.

    Args:
        digest: SHA-256 over its file and whatever else decides the rest.
        written: Its tokens.
        tokens: How many of them take an embedding from it.
        inputs: NumPy arrays by the name of the model's argument.
        of: Pages of the document that it is a page of; 1 for any other image.
    """

    digest: bytes
    written: ImageTokens
    tokens: int
    inputs: Mapping[str, Any] = attrs.field(eq=False, repr=False)
    of: int = 1

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return size_of(list(self.inputs.values()))[1]


class ImageProcessor:
    """Processes images and sounds one by one, on the thread that prepares prompts.

    Args:
        processor: As mlx-vlm loads it.
        fingerprint: Differs where the processor's configuration does.
        hears: The model has a tower for sound.

    Attributes:
        sight: How large images may be of which it loses no pixels.
        hearing: What the model hears, if it does.
    """

    def __init__(
        self, processor: Any, tokenizer: ChatTokenizer, fingerprint: bytes = b"", *, hears: bool = False
    ) -> None:
        self.fingerprint = fingerprint
        self.sight = sight_limit(getattr(processor, "image_processor", None))
        self.hearing = hearing_of(processor) if hears else None
        self._processor = processor
        self._tokenizer = tokenizer
        self._tail = _TAIL if "inference_mode" in call_parameters(processor) else ""
        self._added = {
            ident for token, ident in tokenizer.added_tokens.items() if token.strip() and not token.isspace()
        }

    def markers(self, medium: Medium) -> tuple[str, ...]:
        """Return what the processor says it replaces by images or sounds, likeliest first."""
        values = (getattr(self._processor, name, None) for name in _MARKERS[medium])
        return tuple(str(value) for value in values if value)

    def process(self, given: Image.Image | Samples, marker: str, digest: bytes) -> ProcessedImage:
        """Return what the model is given of an image or a sound, and the tokens that stand for it.

        Args:
            given: An image, or samples at the rate of `hearing`.
            marker: What the processor replaces by its tokens.

        Raises:
            ValueError: It cannot process that.
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
        """Return what mlx-vlm's own preparation returns, without its copies into MLX's memory and back."""
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
        """Return the tokens of an image, and where they begin."""
        bos = self._tokenizer.added_tokens.get(self._tokenizer.bos_token or "")
        begins = self._tokenizer.beginning or ([] if bos is None else [bos])
        skipped = len(begins) if list(ids[: len(begins)]) == begins else 0
        ids = ids[skipped:]
        own = [at for at, ident in enumerate(ids) if ident in self._added]
        if not own:
            raise ValueError("its processor gives images no tokens of their own")
        first, behind = own[0], own[-1] + 1
        decode = self._tokenizer.decode
        before, after = (decode(part) if part else "" for part in (ids[:first], ids[behind:]))
        after = after.removesuffix(self._tail)
        return ImageTokens(before, tuple(ids[first:behind]), after), skipped + first

    def _count(self, tokens: Sequence[int], medium: Medium) -> int:
        ident: Any = getattr(self._processor, f"{medium}_token_id", None)
        counts = Counter(tokens)
        if counts[ident] > 1:
            return counts[ident]
        # It stands once where parts of an image have a token of their own (Llama 4's `<|patch|>`).
        return counts.most_common(1)[0][1]


def call_parameters(processor: Any) -> Collection[str]:
    """Return what a processor takes when mlx-vlm calls it."""
    call = getattr(processor, "process", processor)
    return inspect.signature(call).parameters if callable(call) else ()


def _of_span(name: str, value: Any, span: slice) -> Any:
    """Return what a processor says of all tokens as it is of those of a span."""
    if name in _BY_TOKEN:
        return value[:, span]
    if name in _PLACES:
        return [each - span.start for each in value] if isinstance(value, list) else value - span.start
    return value


def _flat(ids: Any) -> list[int]:
    import numpy as np

    return [int(ident) for ident in np.asarray(to_numpy(ids)).reshape(-1)]

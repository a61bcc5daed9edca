"""The image features of a prompt that is being prefilled."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from greenroom.engine.vision.bidirectional_images import length_without_split
from greenroom.engine.vision.image_encoder import ImageEncoder
from greenroom.engine.vision.image_encoding import ImageEncoding
from greenroom.engine.vision.image_features import ImageFeatures
from greenroom.schemas.messages.prepared_input import PreparedImage, PreparedPrompt
from greenroom.schemas.problems import Problem, ProblemError

_NO_TOKEN = 1 << 31
"""Bit set in keys that stand for a part of an image: above any vocabulary's token ids."""


class ImagePrompt:
    """A prompt's image features; implements `PromptFeatures`.

    Args:
        encoder: Encoder that computes and caches features.
        images: The prompt's images, in order.
    """

    def __init__(self, encoder: ImageEncoder, tokens: Sequence[int], images: Sequence[PreparedImage]) -> None:
        self._encoder = encoder
        self._tokens = tokens
        self._images = images
        self._features: dict[int, ImageFeatures] = {}
        self._reused: set[int] = set()
        self._computed: set[int] = set()
        self._encoding: tuple[int, ImageEncoding] | None = None
        self.keys = _keys(tokens, images)
        self._positions, self.position_shift = encoder.positions(tokens, images)
        self.image_tokens = sum(image.tokens for image in images if not image.is_sound)
        self.nbytes = encoder.bytes_for(images)
        self._whole = [image for image in images if not image.is_sound and encoder.attends_within_images]
        self._kinds = encoder.token_kinds(tokens, self._whole)

    @property
    def reused_tokens(self) -> int:
        """Number of tokens of images whose features were cached."""
        return sum(self._images[index].tokens for index in self._reused)

    def ready(self, start: int) -> int:
        """Return the number of tokens from `start` on that can be prefilled; 0 if `compute` is due."""
        for index, image in enumerate(self._images):
            if image.end > start and not self._has_features(index):
                return max(0, image.start - start)
        return len(self._tokens) - start if start < len(self._tokens) else _NO_TOKEN

    def chunk(self, start: int, count: int) -> int:
        """Return the length of the prefill chunk at `start`: about `count`, without splitting an image."""
        return length_without_split(self._whole, start, count)

    def compute(self, start: int, milliseconds: float) -> None:
        """Compute the features of the image at token `start` for about `milliseconds`."""
        index = next(i for i, image in enumerate(self._images) if image.start <= start < image.end)
        image = self._images[index]
        if self._encoding is None or self._encoding[0] != index:  # A preempted prompt starts again.
            self._encoding = index, self._encoder.encoding(image, self._tokens[image.start : image.end])
        encoding = self._encoding[1]
        encoding.advance(milliseconds)
        if encoding.features is not None:
            self._features[index] = encoding.features
            self._computed.add(index)
            self._encoder.keep(image, encoding.features)
            self._encoding = None

    def arguments(self, start: int, stop: int) -> dict[str, Any]:
        """Return the model's extra arguments for the tokens `start` to `stop`, whose features are ready."""
        for index, image in enumerate(self._images):
            if image.end <= start:
                self._features.pop(index, None)
        added: dict[str, Any] = {}
        if self._positions is not None:
            added["positions"] = self._positions_of(start, stop)
        shown = [
            (max(image.start, start), min(image.end, stop), index)
            for index, image in enumerate(self._images)
            if image.start < stop and image.end > start
        ]
        if not shown:
            return added
        if self._whole:
            added["mm_token_type_ids"] = mx.array(self._kinds[None, start:stop])
        return added | self._inputs(start, stop, shown)

    def _has_features(self, index: int) -> bool:
        if index not in self._features:
            features = self._encoder.cached(self._images[index])
            if features is None:
                return False
            self._features[index] = features
            self._reused |= {index} - self._computed
        return True

    def _positions_of(self, start: int, stop: int) -> mx.array:
        assert self._positions is not None
        known = self._positions[:, start:stop]
        missing = np.arange(max(start, len(self._tokens)), stop) + self.position_shift
        rest = np.broadcast_to(missing, (len(known), max(0, len(missing))))
        return mx.array(np.concatenate([known, rest], axis=1).astype(np.int32))[:, None]

    def _inputs(self, start: int, stop: int, shown: Sequence[tuple[int, int, int]]) -> dict[str, Any]:
        """Return the input embeddings of the tokens, with the features of `shown` images inserted."""
        plain = self._encoder.embed_tokens(
            self._tokens[start:stop]
        )  # All are tokens of the prompt: see `ready`.
        embeddings, layers, at = list[mx.array](), list[mx.array](), start
        seen, deep = np.zeros(stop - start, dtype=bool), list[list[mx.array]]()
        for begin, end, index in shown:
            features, first = self._features[index], self._images[index].start
            span = slice(begin - first, end - first)
            for parts, before, own in (
                (embeddings, plain.embeddings, features.embeddings),
                (layers, plain.layers, features.layers),
            ):
                if before is not None and own is not None:
                    parts += [before[at - start : begin - start], own[span]]
            if features.seen is not None:
                seen[begin - start : end - start] = features.seen[span]
                deep.append(features.deep_of(span))
            at = end
        embeddings.append(plain.embeddings[at - start :])
        inputs: dict[str, Any] = {"input_embeddings": mx.concatenate(embeddings)[None]}
        if layers and plain.layers is not None:
            inputs["per_layer_inputs"] = mx.concatenate([*layers, plain.layers[at - start :]])[None]
        if deep:
            inputs["visual_pos_masks"] = mx.array(seen[None])
            layers_of = zip(*deep, strict=True)
            inputs["deepstack_visual_embeds"] = [mx.concatenate(list(each)) for each in layers_of]
        return inputs


class ImagePromptEncoder(ImageEncoder):
    """Image encoder that opens the features of whole prompts; implements `FeatureSource`."""

    def open(self, prepared: PreparedPrompt) -> ImagePrompt | None:
        """Return a prompt's image features; None if it has no images.

        Raises:
            ProblemError: 400: the prompt ends in an image.
        """
        if not prepared.images:
            return None
        if prepared.images[-1].end >= len(prepared.tokens):
            detail = "A prompt cannot end in an image; write what is asked about it behind it."
            raise ProblemError(Problem(400, "invalid_value", detail, "messages"))
        return ImagePrompt(self, prepared.tokens, prepared.images)


def _keys(tokens: Sequence[int], images: Sequence[PreparedImage]) -> tuple[int, ...]:
    """Return the token ids, with those of images replaced by numbers derived from the image's digest."""
    keys = np.array(tokens, dtype=np.uint32)
    for image in images:
        drawn = hashlib.shake_256(image.digest).digest(4 * (image.end - image.start))
        keys[image.start : image.end] = np.frombuffer(drawn, dtype=np.uint32) | _NO_TOKEN
    return tuple(keys.tolist())

"""The vision encoder of one model: computes image features and caches them for later prompts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakValueDictionary

import mlx.core as mx
import numpy as np

from greenroom.engine.vision.bidirectional_images import attends_within_images, token_kinds
from greenroom.engine.vision.feature_cache import FeatureCache
from greenroom.engine.vision.image_encoding import ImageEncoding
from greenroom.engine.vision.image_features import ImageFeatures
from greenroom.engine.vision.prompts.input_arrays import size_of
from greenroom.engine.vision.vision_language_model import VisionLanguageModel
from greenroom.schemas.messages.prepared_input import PreparedImage

_WIDTHS = ("hidden_size", "embed_dim", "intermediate_size")
"""Fields of a vision configuration that bound the width of a patch's activations."""

_COLORS, _NUMBER_BYTES, _ACTIVATIONS = 3, 4, 4
"""Numbers in the estimate of a tower's memory: colors of a pixel, bytes of a number, and activations that the
tower holds at once per patch, each counted at the largest width."""

_INPUT_FACTOR = 10
"""Memory a tower needs, in bytes per byte of input, if its configuration states no sizes."""


class ImageEncoder:
    """Computes image features for prompts, and caches them.

    Args:
        model: The model whose vision tower computes the features.
        clock: Clock in seconds, of any origin.

    Attributes:
        attends_within_images: True if prefill must not split an image between chunks.
    """

    def __init__(self, model: VisionLanguageModel, clock: Callable[[], float] = time.perf_counter) -> None:
        self._model = model
        self._clock = clock
        self._cache = FeatureCache()
        self._under_way: WeakValueDictionary[bytes, ImageEncoding] = WeakValueDictionary()
        one = self.embed_tokens([0])
        self._vision_config = getattr(model.model.config, "vision_config", None)
        deep = getattr(self._vision_config, "deepstack_visual_indexes", None)
        self.attends_within_images = attends_within_images(model.model)
        self._token_bytes = one.nbytes + one.embeddings.nbytes * len(deep or ())

    @property
    def nbytes(self) -> int:
        """Size of the cached features in bytes."""
        return self._cache.nbytes

    def evict_to(self, nbytes: int) -> None:
        """Evict cached features until at most `nbytes` are held."""
        self._cache.evict_to(nbytes)

    def charge_with(self, reserve: Callable[[int], int]) -> None:
        """Set the callback that charges cached features: it maps bytes wanted to bytes granted."""
        self._cache.reserve = reserve

    def cached(self, image: PreparedImage) -> ImageFeatures | None:
        """Return an image's cached features, or None."""
        return self._cache.get(image.digest)

    def encoding(self, image: PreparedImage, tokens: Sequence[int]) -> ImageEncoding:
        """Return the encoding of an image, shared by all prompts that wait for it.

        Args:
            tokens: Token ids of the image's span.
        """
        encoding = self._under_way.get(image.digest)
        if encoding is None:
            encoding = ImageEncoding(self._model.model, image, tokens, self._clock)
            self._under_way[image.digest] = encoding
        return encoding

    def keep(self, image: PreparedImage, features: ImageFeatures) -> None:
        self._cache.put(image.digest, features)

    def embed_tokens(self, tokens: Sequence[int]) -> ImageFeatures:
        """Return the embeddings of text tokens, not evaluated."""
        embedded = self._model.model.get_input_embeddings(mx.array([list(tokens)])).to_dict()
        return ImageFeatures.of(embedded, len(tokens))

    def positions(
        self, tokens: Sequence[int], images: Sequence[PreparedImage]
    ) -> tuple[np.ndarray[Any, Any] | None, int]:
        """Return a prompt's position ids, `[axes, prompt]`, and the shift of positions after it.

        The position ids are None if each token's position is its index.
        """
        if not self._model.has_grid_positions:
            return None, 0
        names = {name for image in images for name in image.inputs if "grid" in name}
        if not names:  # The processor returns no grid, so the images have no rows and columns.
            return None, 0
        grids = {name: mx.array(np.concatenate([image.inputs[name] for image in images])) for name in names}
        positions, shift = self._model.grid_positions(tokens, grids)
        return np.array(positions)[:, 0], shift

    def token_kinds(self, tokens: Sequence[int], images: list[PreparedImage]) -> np.ndarray[Any, Any]:
        """Return a mask of the prompt's tokens that represent parts of `images`."""
        image_token = getattr(self._model.model.config, "image_token_id", -1)
        return token_kinds(np.array(tokens), images, image_token)

    def bytes_for(self, images: Sequence[PreparedImage]) -> int:
        """Return the bytes of a prompt's features, plus the tower's peak for its largest image."""
        features = sum(image.end - image.start for image in images) * self._token_bytes
        return features + max(map(self._tower_bytes, images), default=0)

    def _tower_bytes(self, image: PreparedImage) -> int:
        """Return the tower's estimated peak memory: its inputs and some activations per patch."""
        inputs = size_of(list(image.inputs.values()))[1]
        pixels, _ = size_of(image.inputs.get("pixel_values", []))
        size = getattr(self._vision_config, "patch_size", None)
        widths = [getattr(self._vision_config, name, None) for name in _WIDTHS]
        width = max((each for each in widths if isinstance(each, int)), default=0)
        if not isinstance(size, int) or not width:
            return _INPUT_FACTOR * inputs
        patches = pixels // (_COLORS * size * size) + 1
        return inputs + patches * width * _ACTIVATIONS * _NUMBER_BYTES

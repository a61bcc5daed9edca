"""The vision encoder of one model: computes image features and caches them for later prompts."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

import attrs
import mlx.core as mx
import numpy as np

from greenroom.engine.vision.chunked_encoder import ChunkedEncoder
from greenroom.engine.vision.image_processor import size_of, to_mlx
from greenroom.engine.vision.vision_language_model import (
    VisionLanguageModel,
    attends_within_images,
    length_without_split,
    token_kinds,
)
from greenroom.schemas.messages.prepared_input import PreparedImage, PreparedPrompt
from greenroom.schemas.problems import Problem, ProblemError

_WIDTHS = ("hidden_size", "embed_dim", "intermediate_size")
"""Fields of a vision configuration that bound the width of a patch's activations."""

_COLORS, _NUMBER_BYTES, _ACTIVATIONS = 3, 4, 4
"""Numbers in the estimate of a tower's memory: colors of a pixel, bytes of a number, and activations that the
tower holds at once per patch, each counted at the largest width."""

_INPUT_FACTOR = 10  # Memory a tower needs, in bytes per byte of input, if its configuration states no sizes


class ImageEncoder:
    """Computes image features for prompts, and caches them.

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
        return self._cache.nbytes

    def evict_to(self, nbytes: int) -> None:
        self._cache.evict_to(nbytes)

    def charge_with(self, reserve: Callable[[int], int]) -> None:
        """Set the callback that charges cached features: it maps bytes wanted to bytes granted."""
        self._cache.reserve = reserve

    def cached(self, image: PreparedImage) -> ImageFeatures | None:
        return self._cache.get(image.digest)

    def encoding(self, image: PreparedImage, tokens: Sequence[int]) -> ImageEncoding:
        """Return the encoding of an image, shared by all prompts that wait for it."""
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


class ImageEncoding:
    """Computes an image's features; several prompts may share one.

    Attributes:
        features: The image's features; None until they are computed.
    """

    def __init__(
        self,
        model: Any,
        image: PreparedImage,
        tokens: Sequence[int],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.features: ImageFeatures | None = None
        self._clock = clock
        self._last = 0.0
        inputs = {name: to_mlx(value) for name, value in image.inputs.items()}
        self._count = len(tokens)
        ids = mx.array([list(tokens)])
        mask = mx.ones_like(ids)
        self._pieces = ChunkedEncoder(model, lambda: model.get_input_embeddings(ids, mask=mask, **inputs))

    def advance(self, milliseconds: float) -> None:
        """Compute for about `milliseconds`: at least one piece, then more while they are likely to fit."""
        end = began = self._clock()
        longest = self._last
        while self.features is None:
            before = end
            self._compute_piece()
            end = self._clock()
            self._last = end - before
            longest = max(longest, self._last)
            if (end - began + longest) * 1e3 > milliseconds:
                return

    def _compute_piece(self) -> None:
        if not self._pieces.is_done:
            self._pieces.advance()
            return
        features = ImageFeatures.of(self._pieces.result().to_dict(), self._count)
        mx.eval(features.embeddings, features.layers, features.deep)
        self.features = features


MAX_BYTES = 512 * 1024 * 1024
"""Default size limit of the cache in bytes: some hundred images of the largest models."""


class FeatureCache:
    """An LRU cache of image features, keyed by the image's digest.

    Args:
        budget: Size limit in bytes.

    Attributes:
        reserve: Callback that takes the bytes wanted and returns the bytes granted.
        nbytes: Size of the cached features in bytes.
    """

    def __init__(self, budget: int = MAX_BYTES) -> None:
        self._budget = budget
        self._kept: OrderedDict[bytes, ImageFeatures] = OrderedDict()
        self.reserve: Callable[[int], int] = lambda nbytes: nbytes
        self.nbytes = 0

    def get(self, digest: bytes) -> ImageFeatures | None:
        features = self._kept.get(digest)
        if features is not None:
            self._kept.move_to_end(digest)
        return features

    def put(self, digest: bytes, features: ImageFeatures) -> None:
        """Insert an image's features, evicting others as the budget requires."""
        if digest in self._kept or features.nbytes > self._budget:
            return
        self._kept[digest] = features
        self.nbytes += features.nbytes
        self.evict_to(min(self._budget, self.reserve(self.nbytes)))

    def evict_to(self, nbytes: int) -> None:
        """Evict the least recently used entries until at most `nbytes` are held."""
        while self.nbytes > nbytes and self._kept:
            _, features = self._kept.popitem(last=False)
            self.nbytes -= features.nbytes
        self.reserve(self.nbytes)


_KNOWN = {
    "inputs_embeds",
    "visual_pos_masks",
    "deepstack_visual_embeds",
    "per_layer_inputs",
    "attention_mask_4d",
    "position_ids",
    "rope_deltas",
}
"""Fields of mlx-vlm's `InputEmbeddingsFeatures` that can be computed for a slice of the prompt.

Position ids are computed from the whole prompt instead. The mask is Gemma 3's; no language model reads it.
"""


@attrs.frozen(eq=False)
class ImageFeatures:
    """Evaluated features of a span of tokens.

    Args:
        embeddings: Input embeddings, `[span, hidden]`.
        layers: Inputs of every layer, `[span, layers, width]` (Gemma's per-layer embeddings), or None.
        seen: Mask of the tokens that stand for a part of the image, `[span]` (bool), for `deep`.
        deep: Tensors added to the output of the first layers at those tokens, one per layer, `[seen, hidden]`
            (Qwen3-VL's DeepStack).
    """

    embeddings: mx.array
    layers: mx.array | None = None
    seen: np.ndarray[Any, np.dtype[np.bool_]] | None = None
    deep: tuple[mx.array, ...] = ()

    @property
    def nbytes(self) -> int:
        layers = 0 if self.layers is None else self.layers.nbytes
        return self.embeddings.nbytes + layers + sum(each.nbytes for each in self.deep)

    def deep_of(self, span: slice) -> list[mx.array]:
        if self.seen is None:
            return []
        first, count = int(self.seen[: span.start].sum()), int(self.seen[span].sum())
        return [each[first : first + count] for each in self.deep]

    @classmethod
    def of(cls, output: Mapping[str, Any], count: int) -> ImageFeatures:
        """Return the features in the output of an mlx-vlm model for one row of tokens.

        Args:
            count: Number of tokens in the row.

        Raises:
            ProblemError (501): a field depends on the whole prompt, or the number of embeddings is not
                `count`.
        """
        parts = {name: value for name, value in output.items() if value is not None}
        if _masks_nothing(parts.get("attention_mask"), count):
            del parts["attention_mask"]
        if unknown := parts.keys() - _KNOWN:
            detail = f"This model reads images in a way that is not supported ({', '.join(sorted(unknown))})."
            raise _unsupported(detail)
        made = parts["inputs_embeds"].shape[1]
        if made != count:
            detail = (
                f"mlx-vlm makes {made:,} embeddings of the {count:,} tokens that stand for an image of this "
                "model, so which of them belongs to which token is not known."
            )
            raise _unsupported(detail)
        layers, seen = parts.get("per_layer_inputs"), parts.get("visual_pos_masks")
        deep = parts.get("deepstack_visual_embeds")
        if deep is not None and hasattr(deep, "position_mask"):  # Cohere's Compass has a class for the two
            deep, seen = deep.embeddings, deep.position_mask
        deep = () if deep is None or seen is None else tuple(mx.contiguous(each) for each in deep)
        return cls(
            mx.contiguous(parts["inputs_embeds"][0]),
            None if layers is None else mx.contiguous(layers[0]),
            np.array(seen).reshape(-1) if deep else None,
            deep,
        )


def _masks_nothing(mask: mx.array | None, count: int) -> bool:
    """Return whether a mask is that of a row without padding, which some models return with the features."""
    return mask is not None and mask.shape == (1, count) and bool(mx.all(mask == 1).item())


def _unsupported(detail: str) -> ProblemError:
    return ProblemError(Problem(501, "unsupported_model_type", detail, "model"))


_NO_TOKEN = 1 << 31  # Bit set in keys that stand for a part of an image: above any vocabulary's token ids


class ImagePrompt:
    """A prompt's image features; implements `PromptFeatures`."""

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
        """Return a prompt's image features; None if it has no images. Raises ProblemError (400): the prompt
        ends in an image.
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

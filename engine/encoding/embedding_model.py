"""A loaded embedding model (encoder, pooling, further layers, normalization), and its loading."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn

from greenroom.engine.catalog.encoder_kinds import EXTRA_ENCODERS, SAME_CODE, embedding_modules
from greenroom.engine.catalog.model_files import read_json_object, read_optional
from greenroom.engine.catalog.sentence_transformers_config import (
    Layer,
    SentenceTransformersConfig,
    read_sentence_transformers_config,
)
from greenroom.engine.encoding.embedding_adapter import PreparedTexts
from greenroom.engine.encoding.encoder_engine import EncoderEngine, measure_passes
from greenroom.engine.encoding.row_queue import PassCost, pass_cost
from greenroom.engine.encoding.rows import Row, Values, pad
from greenroom.engine.loading.devices import use_device
from greenroom.engine.loading.libraries import import_model_code, named_load_errors
from greenroom.engine.loading.openblas import multiply_by_openblas
from greenroom.engine.loading.read_weights import (
    cast_weights,
    load_arrays,
    read_weights,
    recorded_files,
    weight_bytes,
)
from greenroom.engine.loading.weight_files import check_weight_files
from greenroom.engine.resources.residence import ModelLoad
from greenroom.schemas.events.result_events import Vector
from greenroom.schemas.problems import ProblemError, model_broken
from greenroom.schemas.settings.settings import Settings

_SMALLEST = 1e-12  # Norm below which a vector is not scaled to 1


class EmbeddingModel:
    """Computes embeddings of rows; implements `greenroom.engine.encoding.rows.RowModel`."""

    def __init__(
        self, encode: Encode, padding: int, files: SentenceTransformersConfig, cost: PassCost
    ) -> None:
        self._encode = encode
        self._padding = padding
        self._files = files
        self._cost = cost
        self._layers = [load_layer(layer) for layer in files.layers]

    def compute(self, rows: Sequence[Row]) -> Values:
        """Return the embeddings of rows at full width, `[rows, width]`."""
        ids, mask = pad([row.tokens for row in rows], self._padding)
        counted = mask
        if not self._files.pooling.include_prompt and any(row.instructed for row in rows):
            counted = mask.copy()
            for at, row in enumerate(rows):
                counted[at, : row.instructed] = 0
        hidden = self._encode(mx.array(ids), mx.array(mask))
        vectors = pool(hidden, mx.array(counted), self._files.pooling.modes)
        for layer in self._layers:
            vectors = layer(vectors)
        vectors = vectors.astype(mx.float32)
        mx.eval(vectors)
        values = np.array(vectors)
        return _normalize(values) if self._files.normalized else values

    def event(self, prepared: PreparedTexts, index: int, values: Values) -> Vector:
        """Return the vector of text `index`, cut to the dimensions that its request wants. Raises
        ProblemError (503 `model_broken`): the model computed NaN or infinity.
        """
        if not np.isfinite(values).all():
            raise ProblemError(model_broken(f"text {index}", prepared.param))
        if prepared.dimensions is not None and prepared.dimensions < len(values):
            values = values[: prepared.dimensions]
            if self._files.normalized:
                values = _normalize(values)
        return Vector(values.astype("<f4").tobytes(), index)

    def batch_bytes(self, rows: int, width: int) -> int:
        return self._cost.batch_bytes(rows, width)


def _normalize(values: Values) -> Values:
    """Return vectors scaled to norm 1."""
    lengths = np.linalg.norm(values.astype(np.float64), axis=-1, keepdims=True)
    normalized: Values = (values / np.maximum(lengths, _SMALLEST)).astype(np.float32)
    return normalized


Encode = Callable[[mx.array, mx.array], mx.array]
"""Maps ids and mask `[rows, width]` to `[rows, width, hidden]`; the values at padding are arbitrary."""


def hidden_states(model: Any, config: Mapping[str, Any]) -> Encode:
    """Return the encoder of a loaded model."""
    if config.get("model_type") == "gemma3_text":
        return _gemma3(model, config)
    if config.get("model_type") == "llama_nemotron_vl":
        return _two_way_llama(model)
    if config.get("model_type") == "qwen3_vl_embedding":
        return _forgetful(model)

    def encode(ids: mx.array, mask: mx.array) -> mx.array:
        hidden: mx.array = model(ids, attention_mask=mask).last_hidden_state
        return hidden

    return encode


def _forgetful(model: Any) -> Encode:
    """Return Qwen3-VL's encoder without state: mlx-vlm reuses the positions of the previous call."""

    def encode(ids: mx.array, mask: mx.array) -> mx.array:
        model.language_model._position_ids = model.language_model._rope_deltas = None
        hidden: mx.array = model(ids, attention_mask=mask).last_hidden_state
        return hidden

    return encode


def _two_way_llama(model: Any) -> Encode:
    """Return the encoder of Llama Nemotron VL's text half.

    mlx-embeddings casts its mask to the type of the token embeddings: integers if those are quantized.
    """
    inner = model.language_model

    def encode(ids: mx.array, mask: mx.array) -> mx.array:
        hidden: mx.array = inner(ids, mask.astype(mx.bool_)[:, None, None, :])
        return hidden

    return encode


def _gemma3(model: Any, config: Mapping[str, Any]) -> Encode:
    """Return Gemma 3's encoder, with sliding-window attention to both sides in its local layers.

    Both libraries let these layers see the whole text, which changes the result for texts longer than half
    the window. Source: transformers, modeling_gemma3.py (`use_bidirectional_attention`).
    """
    inner, pattern = model.model, model.config.sliding_window_pattern
    window = model.config.sliding_window // 2 + 1
    kinds = ("sliding_attention", "full_attention")
    layer_types = config.get("layer_types") or [
        kinds[at % pattern == 0] for at in range(1, len(inner.layers) + 1)
    ]

    def encode(ids: mx.array, mask: mx.array) -> mx.array:
        hidden = inner.embed_tokens(ids)
        hidden = hidden * mx.array(model.config.hidden_size**0.5, mx.bfloat16).astype(hidden.dtype)
        seen = mask.astype(mx.bool_)[:, None, None, :]
        masks = {"full_attention": seen, "sliding_attention": seen}
        if ids.shape[1] > window:
            places = mx.arange(ids.shape[1])
            # A padded query may see no token in its window; it sees all, since an empty softmax is NaN.
            near = (mx.abs(places[:, None] - places) < window) | ~mask.astype(mx.bool_)[:, None, :, None]
            masks["sliding_attention"] = seen & near
        for layer, kind in zip(inner.layers, layer_types, strict=True):
            hidden = layer(hidden, masks[kind], None)
        normalized: mx.array = inner.norm(hidden)
        return normalized

    return encode


_ACTIVATIONS: dict[str, Callable[[mx.array], mx.array]] = {
    "Identity": lambda values: values,
    "Tanh": mx.tanh,
    "Sigmoid": mx.sigmoid,
    "ReLU": nn.relu,
    "GELU": nn.gelu,
    "SiLU": nn.silu,
}


def load_layer(layer: Layer) -> Callable[[mx.array], mx.array]:
    """Return the layer as a function of float32 vectors `[rows, numbers]`, with its weights in memory. Raises
    ValueError: one sentence: its files are missing, or name an unknown activation.
    """
    if layer.activation not in _ACTIVATIONS:
        raise ValueError(
            f"its layer {layer.folder.name} asks for '{layer.activation}', which is not known here"
        )
    file = layer.folder / "model.safetensors"
    if not file.is_file():
        raise ValueError(f"its layer {layer.folder.name} has no model.safetensors")
    with recorded_files():
        weights = {name: value.astype(mx.float32) for name, value in load_arrays(file).items()}
        mx.eval(weights)
    if layer.kind == "LayerNorm":
        return _layer_norm(weights, layer)
    weight, bias = _weight(weights, "linear.weight", layer), weights.get("linear.bias")
    activate = _ACTIVATIONS[layer.activation]

    def dense(values: mx.array) -> mx.array:
        product = values @ weight.T
        return activate(product if bias is None else product + bias)

    return dense


def _layer_norm(weights: dict[str, mx.array], layer: Layer) -> Callable[[mx.array], mx.array]:
    weight, bias = _weight(weights, "norm.weight", layer), _weight(weights, "norm.bias", layer)
    return lambda values: mx.fast.layer_norm(values, weight, bias, 1e-5)


def _weight(weights: dict[str, mx.array], name: str, layer: Layer) -> mx.array:
    if name not in weights:
        raise ValueError(f"its layer {layer.folder.name} has no {name}")
    return weights[name]


def pool(hidden: mx.array, mask: mx.array, modes: Sequence[str]) -> mx.array:
    """Return one vector for each text, `[rows, modes * hidden]` in float32.

    Args:
        hidden: Hidden states, `[rows, width, hidden]`, padded on the right.
        mask: 1 for tokens that count, `[rows, width]`; a row without any gives zeros.
        modes: Pooling modes, as in `sentence_transformers_config.Pooling`.
    """
    hidden, weights = hidden.astype(mx.float32), mask.astype(mx.float32)[..., None]
    return mx.concatenate([_MODES[mode](hidden, weights) for mode in modes], axis=-1)


def _first(hidden: mx.array, weights: mx.array) -> mx.array:
    return hidden[:, 0]


def _last(hidden: mx.array, weights: mx.array) -> mx.array:
    last = mx.argmax(weights[..., 0] * mx.arange(1, hidden.shape[1] + 1), axis=1)
    taken: mx.array = mx.take_along_axis(hidden, last[:, None, None], axis=1)
    return taken[:, 0]


def _max(hidden: mx.array, weights: mx.array) -> mx.array:
    return mx.where(weights > 0, hidden, -1e9).max(axis=1)


def _mean(hidden: mx.array, weights: mx.array) -> mx.array:
    return (hidden * weights).sum(axis=1) / mx.maximum(weights.sum(axis=1), 1e-9)


def _mean_sqrt(hidden: mx.array, weights: mx.array) -> mx.array:
    return (hidden * weights).sum(axis=1) / mx.sqrt(mx.maximum(weights.sum(axis=1), 1e-9))


def _weighted(hidden: mx.array, weights: mx.array) -> mx.array:
    positions = mx.arange(1, hidden.shape[1] + 1).astype(mx.float32)
    return _mean(hidden, weights * positions[None, :, None])


_MODES: dict[str, Callable[[mx.array, mx.array], mx.array]] = {
    "cls": _first,
    "last": _last,
    "max": _max,
    "mean": _mean,
    "mean_sqrt": _mean_sqrt,
    "weighted": _weighted,
}


def open_embedding_engine(load: ModelLoad) -> EncoderEngine:
    """Load a model's weights, confined to this thread. Raises ProblemError (503 `load_failed`); 507: there is
    not enough memory for the weights. Raises LoadAbandonedError: the load was abandoned.
    """
    use_device(load.settings)
    with load.open_share() as (share, charge), named_load_errors(load.folder):
        model = _load_model(load, charge)
        return EncoderEngine(model, share, measure_passes(model, load.clock), load.clock)


def _load_model(load: ModelLoad, charge: Callable[[int], None]) -> EmbeddingModel:
    folder = load.folder
    files, config = read_sentence_transformers_config(folder), read_optional(folder / "config.json")
    with recorded_files(load.is_abandoned) as recorded:
        encoder = load_encoder_lazily(folder, load.settings)
    behind = sum(file.stat().st_size for file in folder.glob("*/model.safetensors"))
    charge(weight_bytes(encoder) + behind)
    read_weights(encoder, recorded, load.progress, load.is_abandoned)
    model = EmbeddingModel(
        hidden_states(encoder, config), padding_token(folder, encoder), files, pass_cost(config, encoder)
    )
    _try(model, files.width)
    return model


def _try(model: EmbeddingModel, width: int) -> None:
    """Compute two rows, so that a broken model fails at load and kernels are compiled before requests. Raises
    ValueError: the vectors do not have the width stated in the model's files.
    """
    rows = [Row(np.zeros(length, np.int32)) for length in (2, 4)]
    found = model.compute(rows).shape[1]
    if found != width:
        raise ValueError(f"its vectors have {found} numbers, but its files tell of {width}")


def load_encoder_lazily(folder: Path, settings: Settings) -> Any:
    """Return a model whose weights are not evaluated yet.

    It is called with token ids `[rows, width]` and `attention_mask=`, and returns an object whose
    `last_hidden_state` is `[rows, width, hidden]`. Further layers, with which mlx-vlm's classes would pool,
    are removed. mlx-vlm must be imported before (`import_encoder_libraries`).

    Raises:
        Exception: Any error of the library for files that it cannot use.
    """
    check_weight_files(folder)
    config = read_json_object(folder / "config.json")
    architecture = str(config.get("model_type", "")).lower()
    if architecture in EXTRA_ENCODERS:
        # mlx-embeddings is GPL-3.0, so nothing else may depend on it: an extra, imported only here.
        model = import_model_code("mlx_embeddings.utils").load_model(folder, lazy=True)
    else:
        model = _load_known_encoder(folder, config, SAME_CODE.get(architecture, architecture))
    mx.eval(mx.random.state)  # Otherwise its graph keeps the layers' initial random weights alive.
    cast_weights(model, settings)
    multiply_by_openblas(model)
    return model


def _load_known_encoder(folder: Path, config: dict[str, Any], architecture: str) -> Any:
    from mlx_vlm.embedding_loader import EMBEDDING_MODEL_REMAPPING
    from mlx_vlm.encoder_loader import load_encoder_model

    config["model_type"] = architecture
    if architecture == "embedding_gemma2":  # Its towers, for which weights may be missing, are not built.
        config["vision_config"] = config["audio_config"] = None
    known = {*EMBEDDING_MODEL_REMAPPING, *embedding_modules()}
    if architecture not in known and architecture.replace("-", "_") not in known:
        raise ValueError(f"how '{architecture}' makes vectors of texts is not known to the installed mlx-vlm")
    # mlx-vlm also loads the weights of all subfolders into the model, and most classes have no such weights.
    strict = not any(folder.glob("*/*.safetensors")) and architecture != "gemma3_text"
    model = load_encoder_model(
        folder, model_remapping=EMBEDDING_MODEL_REMAPPING, config=config, lazy=True, strict=strict
    )
    if hasattr(model, "dense"):
        del model.dense
    if not strict:
        _check_names(model, folder)
    return model


def padding_token(folder: Path, model: Any) -> int:
    """Return the id of the padding token; some architectures derive positions from it."""
    for source in (model.config, getattr(model.config, "text_config", None)):
        if isinstance(token := getattr(source, "pad_token_id", None), int):
            return max(token, 0)
    token = read_optional(folder / "config.json").get("pad_token_id")
    return token if isinstance(token, int) and token > 0 else 0


def _check_names(model: Any, folder: Path) -> None:
    """Check that the files hold every weight. Raises ValueError: A weight is missing."""
    from mlx.utils import tree_flatten

    weights: dict[str, mx.array] = {}
    for file in sorted(folder.glob("model*.safetensors")):
        weights |= load_arrays(file)
    given = model.sanitize(weights)
    missing = sorted({name for name, _ in tree_flatten(model.parameters())} - given.keys())
    if missing:
        raise ValueError(f"its files lack {len(missing)} of its weights, such as {missing[0]}")

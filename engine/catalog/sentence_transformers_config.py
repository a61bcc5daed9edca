"""Configuration files of sentence-transformers: pooling, further layers and prompts of an embedding model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from greenroom.engine.catalog.model_files import read_json, read_optional, text_config

_MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt",
    "pooling_mode_weightedmean_tokens": "weighted",
    "pooling_mode_lasttoken": "last",
}
"""Pooling modes by configuration field, in the order in which several are concatenated."""
_NAMES = {"mean_sqrt_len_tokens": "mean_sqrt", "weightedmean": "weighted", "lasttoken": "last"}
"""Pooling modes that newer files name differently."""

_DEFAULT_MODES = {
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3", "qwen3_vl_embedding"), "last"),
    "lfm2": "cls",
}
"""Pooling modes by architecture, for folders that state none; all others use the mean."""

_LAYERS = ("Dense", "LayerNorm")
_WITHOUT_EFFECT = ("Dropout", "Transformer")


@attrs.frozen
class Pooling:
    """Pooling of a text's token vectors into one vector.

    Args:
        modes: Modes among `cls`, `max`, `mean`, `mean_sqrt`, `weighted`, `last`; several are concatenated.
        include_prompt: Whether the tokens of the prompt before the text are pooled too.
    """

    modes: tuple[str, ...]
    include_prompt: bool = True


@attrs.frozen
class Layer:
    """A `Dense` or `LayerNorm` layer after the pooling, with its own weights."""

    kind: str
    folder: Path
    outputs: int
    activation: str = "Identity"


@attrs.frozen
class SentenceTransformersConfig:
    """Embedding configuration of a model's folder.

    Args:
        pooling: Pooling of token vectors.
        normalized: Whether embeddings have length 1.
        default_prompt: Name of the prompt for texts without a stated task.
        lower_case: Whether texts are lowercased before tokenization.
    """

    pooling: Pooling
    layers: tuple[Layer, ...]
    width: int
    normalized: bool
    prompts: Mapping[str, str]
    default_prompt: str | None
    lower_case: bool


def read_sentence_transformers_config(folder: Path) -> SentenceTransformersConfig:
    """Return the embedding configuration of a model's folder, with usual defaults for missing parts. Raises
    ValueError: one sentence: the embeddings are computed in an unknown way.
    """
    config = read_optional(folder / "config.json")
    hidden = _hidden_size(config)
    modules = _modules(folder)
    pooling = _pooling(folder, str(config.get("model_type", "")), modules)
    width = hidden * len(pooling.modes)
    layers = []
    for kind, path in modules or ():
        if kind in _LAYERS:
            layers.append(_layer(folder / path, kind, width))
            width = layers[-1].outputs
    transformer = read_optional(folder / "sentence_bert_config.json")
    prompts = read_optional(folder / "config_sentence_transformers.json")
    named, default = prompts.get("prompts"), prompts.get("default_prompt_name")
    return SentenceTransformersConfig(
        pooling=pooling,
        layers=tuple(layers),
        width=width,
        normalized=modules is None or any(kind == "Normalize" for kind, _ in modules),
        prompts={str(name): str(text) for name, text in named.items()} if isinstance(named, dict) else {},
        default_prompt=default if isinstance(default, str) else None,
        lower_case=transformer.get("do_lower_case") is True,
    )


def projects_tokens(folder: Path) -> bool:
    """Return whether a model's folder has a layer for the vectors of tokens, which are then not pooled.

    Models of late interaction (ColBERT) have one: in PyLate's folders, a `Dense` layer takes the place of the
    pooling.
    """
    try:
        listed = read_json(folder / "modules.json")
    except ValueError:
        return (folder / "1_Dense" / "config.json").is_file()
    modules = listed if isinstance(listed, list) else []
    kinds = [str(module.get("type", "")) for module in modules if isinstance(module, dict)]
    if any(kind.startswith("pylate.") for kind in kinds):
        return True
    steps = [kind.rpartition(".")[2] for kind in kinds]
    return "Dense" in steps and "Pooling" not in steps[: steps.index("Dense")]


def _hidden_size(config: Mapping[str, Any]) -> int:
    projected = ("embedding_dim",) if config.get("model_type") == "embedding_gemma2" else ()
    for field in (*projected, "hidden_size"):
        for source in (config, text_config(config)):
            if size := _count(source.get(field)):
                return size
    raise ValueError("its config.json names no hidden_size")


def _modules(folder: Path) -> list[tuple[str, str]] | None:
    try:
        listed = read_json(folder / "modules.json")
    except ValueError:
        return None
    if not isinstance(listed, list):
        return None
    modules = []
    for module in listed:
        if not isinstance(module, dict):
            raise ValueError("its modules.json has an entry that is no module")
        kind, path = str(module.get("type", "")).rpartition(".")[2], str(module.get("path", ""))
        if kind not in (*_LAYERS, *_WITHOUT_EFFECT, "Pooling", "Normalize"):
            raise ValueError(f"its vectors need a module '{kind}', which is not known here")
        if Path(path).is_absolute() or ".." in Path(path).parts:
            raise ValueError(f"its modules.json names a folder outside the model's: '{path}'")
        modules.append((kind, path))
    return modules


def _pooling(folder: Path, architecture: str, modules: list[tuple[str, str]] | None) -> Pooling:
    path = next((path for kind, path in modules or () if kind == "Pooling"), "1_Pooling")
    config = read_optional(folder / path / "config.json")
    named = config.get("pooling_mode")
    if named:
        names = named if isinstance(named, list) else [named]
        modes = [_NAMES.get(str(name), str(name)) for name in names]
    else:
        modes = [mode for field, mode in _MODES.items() if config.get(field) is True]
    unknown = next((mode for mode in modes if mode not in _MODES.values()), None)
    if unknown is not None:
        raise ValueError(f"its tokens are pooled by '{unknown}', which is not known here")
    default = _DEFAULT_MODES.get(architecture, "mean")
    return Pooling(tuple(modes or [default]), config.get("include_prompt") is not False)


def _layer(folder: Path, kind: str, inputs: int) -> Layer:
    config = read_optional(folder / "config.json")
    if kind == "LayerNorm":
        return Layer(kind, folder, inputs)
    outputs = _count(config.get("out_features"))
    if outputs is None or _count(config.get("in_features")) != inputs:
        raise ValueError(f"its layer {folder.name} does not take the {inputs} numbers that come to it")
    activation = str(config.get("activation_function", "")).rpartition(".")[2] or "Tanh"
    return Layer(kind, folder, outputs, activation)


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**31 else None

"""Load the encoder of a model that reads whole texts, with mlx-vlm's code for its architecture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx

from greenroom.engine.catalog.files.json_files import read_json_object, read_optional
from greenroom.engine.catalog.kinds.encoder_kinds import EXTRA_ENCODERS, SAME_CODE, embedding_modules
from greenroom.engine.encoding.load_extra_encoder import load_extra_encoder
from greenroom.engine.loading.read_weights import cast_weights, load_arrays
from greenroom.engine.loading.weight_files import check_weight_files
from greenroom.schemas.settings.settings import Settings


def load_encoder_lazily(folder: Path, settings: Settings) -> Any:
    """Return a model whose weights are named, but not read yet.

    It is called with token ids `[rows, width]` and `attention_mask=`, and gives an object whose
    `last_hidden_state` is `[rows, width, hidden]`. Layers behind that, which mlx-vlm's classes pool with
    for themselves, are left out. Import mlx-vlm before (`import_encoder_libraries`).

    Raises:
        Exception: Whatever the library raises for files that it cannot use.
    """
    check_weight_files(folder)
    config = read_json_object(folder / "config.json")
    architecture = str(config.get("model_type", "")).lower()
    if architecture in EXTRA_ENCODERS:
        model = load_extra_encoder(folder)
    else:
        model = _load_known_encoder(folder, config, SAME_CODE.get(architecture, architecture))
    mx.eval(mx.random.state)  # or the random weights that every layer was given first would stay alive
    if settings.dtype != "auto":
        cast_weights(model, getattr(mx, settings.dtype))
    return model


def _load_known_encoder(folder: Path, config: dict[str, Any], architecture: str) -> Any:
    """Return a model of an architecture that mlx-vlm knows."""
    from mlx_vlm.embedding_loader import EMBEDDING_MODEL_REMAPPING
    from mlx_vlm.encoder_loader import load_encoder_model

    config["model_type"] = architecture
    if architecture == "embedding_gemma2":  # its towers are made of nothing where its files have none
        config["vision_config"] = config["audio_config"] = None
    known = {*EMBEDDING_MODEL_REMAPPING, *embedding_modules()}
    if architecture not in known and architecture.replace("-", "_") not in known:
        raise ValueError(f"how '{architecture}' makes vectors of texts is not known to the installed mlx-vlm")
    # mlx-vlm reads the weights of all subfolders into the same model, which most classes have no place for.
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
    """Return the token that texts are padded with; some architectures count positions without it."""
    for source in (model.config, getattr(model.config, "text_config", None)):
        if isinstance(token := getattr(source, "pad_token_id", None), int):
            return max(token, 0)
    token = read_optional(folder / "config.json").get("pad_token_id")
    return token if isinstance(token, int) and token > 0 else 0


def _check_names(model: Any, folder: Path) -> None:
    """Make sure that the files hold every weight.

    Raises:
        ValueError: One is missing.
    """
    from mlx.utils import tree_flatten

    weights: dict[str, mx.array] = {}
    for file in sorted(folder.glob("model*.safetensors")):
        weights |= load_arrays(file)
    given = model.sanitize(weights)
    missing = sorted({name for name, _ in tree_flatten(model.parameters())} - given.keys())
    if missing:
        raise ValueError(f"its files lack {len(missing)} of its weights, such as {missing[0]}")

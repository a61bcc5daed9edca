"""Loading an encoder with the code of mlx-vlm or of the extra mlx-embeddings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx

from greenroom.engine.catalog.encoder_kinds import EXTRA_ENCODERS, SAME_CODE, embedding_modules
from greenroom.engine.catalog.model_files import read_json_object, read_optional
from greenroom.engine.loading.libraries import import_model_code
from greenroom.engine.loading.read_weights import cast_weights, load_arrays
from greenroom.engine.loading.weight_files import check_weight_files
from greenroom.schemas.settings.settings import Settings


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
        model = load_extra_encoder(folder)
    else:
        model = _load_known_encoder(folder, config, SAME_CODE.get(architecture, architecture))
    mx.eval(mx.random.state)  # Otherwise its graph keeps the layers' initial random weights alive.
    cast_weights(model, settings)
    return model


def _load_known_encoder(folder: Path, config: dict[str, Any], architecture: str) -> Any:
    """Return a model of an architecture that mlx-vlm supports."""
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
    """Check that the files hold every weight.

    Raises:
        ValueError: A weight is missing.
    """
    from mlx.utils import tree_flatten

    weights: dict[str, mx.array] = {}
    for file in sorted(folder.glob("model*.safetensors")):
        weights |= load_arrays(file)
    given = model.sanitize(weights)
    missing = sorted({name for name, _ in tree_flatten(model.parameters())} - given.keys())
    if missing:
        raise ValueError(f"its files lack {len(missing)} of its weights, such as {missing[0]}")


# Loading encoders of architectures that only mlx-embeddings supports.
#
# That package is GPL-3.0, so nothing else may depend on it: it is the extra `embeddings`, imported only
# here.


def load_extra_encoder(folder: Path) -> Any:
    """Return a model whose weights are not evaluated yet.

    Raises:
        ModuleNotFoundError: The package is not installed.
        Exception: Any error of the library for files that it cannot use.
    """
    return import_model_code("mlx_embeddings.utils").load_model(folder, lazy=True)

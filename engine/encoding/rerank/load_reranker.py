"""Loading rerankers from their folders, on the thread that will use them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from greenroom.engine.catalog.files.json_files import read_json_object
from greenroom.engine.catalog.kinds.encoder_kinds import label_count
from greenroom.engine.encoding.pass_cost import pass_cost
from greenroom.engine.encoding.rerank.cross_encoder import CrossEncoder
from greenroom.engine.encoding.rerank.generative_reranker import GenerativeReranker
from greenroom.engine.encoding.rerank.generative_template import answer_tokens
from greenroom.engine.encoding.rerank.reranker_kinds import CLASSIFIERS, reranker_type
from greenroom.engine.encoding.rows import Row, RowModel
from greenroom.engine.loading.devices import use_device
from greenroom.engine.loading.load_errors import named_load_errors
from greenroom.engine.loading.read_weights import cast_weights, read_weights, weight_bytes
from greenroom.engine.loading.recorded_files import recorded_files
from greenroom.engine.loading.weight_files import check_weight_files
from greenroom.engine.tokenizer.reading_in_pieces import read_backend
from greenroom.schemas.settings.settings import Settings


def load_reranker(
    folder: Path,
    settings: Settings,
    progress: Callable[[float], None],
    is_abandoned: Callable[[], bool],
    reserve_memory: Callable[[int], None],
) -> RowModel:
    """Return a model with all its weights in memory, after one trial pass.

    Args:
        settings: Settings, of which `device`, `dtype` and `trust_remote_code` apply.
        progress: Callback with the fraction of the weights in memory, 0 to 1.
        is_abandoned: Callback that is polled between chunks of the weights.
        reserve_memory: Callback with the weights' bytes, before they are read; may raise ProblemError.

    Raises:
        ProblemError: 503 `load_failed`: files are missing, broken, or do not fit the architecture.
        LoadAbandonedError: `is_abandoned` returned True.
    """
    use_device(settings)
    with named_load_errors(folder):
        check_weight_files(folder)
        config = read_json_object(folder / "config.json")
        cross = reranker_type(config) == "cross_encoder"
        with recorded_files(is_abandoned) as files:
            network = _classifier(folder, config) if cross else _decoder(folder, settings)
        mx.eval(mx.random.state)  # Otherwise its graph keeps the layers' initial random weights alive.
        cast_weights(network, settings)
        reserve_memory(weight_bytes(network))
        read_weights(network, files, progress, is_abandoned)
        network.eval()
        model = _wrap(network, folder, config, cross)
        model.compute([Row(np.zeros(1, np.int32), second=1 if cross else None)])
        return model


def _classifier(folder: Path, config: dict[str, Any]) -> Any:
    from mlx_vlm.encoder_loader import load_encoder_model

    activation = str(config.get("hidden_act", "gelu"))
    if activation != "gelu":
        raise ValueError(
            f"its activation '{activation}' is not known to mlx-vlm's encoders, which have 'gelu'"
        )
    return load_encoder_model(
        folder,
        model_remapping=dict(CLASSIFIERS),
        model_class_name="SequenceClassificationModel",
        config=config,
        config_overrides={"num_labels": label_count(config)},
        lazy=True,
    )


def _decoder(folder: Path, settings: Settings) -> Any:
    from mlx_lm.utils import load_model

    model, _ = load_model(folder, lazy=True, trust_remote_code=settings.trust_remote_code)
    return model


def _wrap(network: Any, folder: Path, config: dict[str, Any], cross: bool) -> RowModel:
    cost = pass_cost(config, network)
    if cross:
        return CrossEncoder(network, config, label_count(config), cost.batch_bytes)
    vocabulary = read_backend(str(folder / "tokenizer.json"))
    known = {word: vocabulary.token_to_id(word) for word in ("yes", "no")}
    found = {word: ident for word, ident in known.items() if ident is not None}
    return GenerativeReranker(network, answer_tokens(folder, found), cost)

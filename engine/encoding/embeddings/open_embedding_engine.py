"""Opening an embedding model: its weights within the available memory, and its engine."""

from __future__ import annotations

from collections.abc import Callable

from greenroom.engine.catalog.files.json_files import read_optional
from greenroom.engine.catalog.files.sentence_transformers_config import read_sentence_transformers_config
from greenroom.engine.encoding.embeddings.embedding_model import EmbeddingModel
from greenroom.engine.encoding.embeddings.hidden_states import hidden_states
from greenroom.engine.encoding.encoder_engine import EncoderEngine
from greenroom.engine.encoding.first_passes import measure_passes
from greenroom.engine.encoding.load_encoder import load_encoder_lazily, padding_token
from greenroom.engine.encoding.pass_cost import pass_cost
from greenroom.engine.encoding.rows import Row
from greenroom.engine.loading.devices import use_device
from greenroom.engine.loading.load_errors import named_load_errors
from greenroom.engine.loading.read_weights import read_weights, weight_bytes
from greenroom.engine.loading.recorded_files import recorded_files
from greenroom.engine.memory.model_load import ModelLoad


def open_embedding_engine(load: ModelLoad) -> EncoderEngine:
    """Load a model's weights, confined to this thread.

    Raises:
        ProblemError: 503 `load_failed`; 507: there is not enough memory for the weights.
        LoadAbandonedError: The load was abandoned.
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
    """Compute two rows, so that a broken model fails at load and kernels are compiled before requests.

    Raises:
        ValueError: The vectors do not have the width stated in the model's files.
    """
    import numpy as np

    rows = [Row(np.zeros(length, np.int32)) for length in (2, 4)]
    found = model.compute(rows).shape[1]
    if found != width:
        raise ValueError(f"its vectors have {found} numbers, but its files tell of {width}")

"""Opening a reranker: its weights within the available memory, and its engine."""

from __future__ import annotations

from greenroom.engine.encoding.encoder_engine import EncoderEngine
from greenroom.engine.encoding.first_passes import measure_passes
from greenroom.engine.encoding.rerank.cross_encoder import CrossEncoder
from greenroom.engine.encoding.rerank.load_reranker import load_reranker
from greenroom.engine.memory.model_load import ModelLoad


def open_rerank_engine(load: ModelLoad) -> EncoderEngine:
    """Load a model's weights, confined to this thread.

    Raises:
        ProblemError: 503 `load_failed`; 507: there is not enough memory for the weights.
        LoadAbandonedError: The load was abandoned.
    """
    with load.open_share() as (share, charge):
        model = load_reranker(load.folder, load.settings, load.progress, load.is_abandoned, charge)
        budget = measure_passes(model, load.clock, pairs=isinstance(model, CrossEncoder))
        return EncoderEngine(model, share, budget, load.clock)

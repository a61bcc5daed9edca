"""Opening a vision model: the text engine over mlx-vlm's weights, with image features."""

from __future__ import annotations

from greenroom.engine.adapters.adapter import Adapter
from greenroom.engine.loading.load_errors import named_load_errors
from greenroom.engine.memory.model_load import ModelLoad
from greenroom.engine.text.open_text_engine import open_text_engine
from greenroom.engine.text.text_engine import TextEngine
from greenroom.engine.vision.image_prompt import ImagePromptEncoder
from greenroom.engine.vision.load_vision_model import load_vision_lazily
from greenroom.engine.vision.prompts.vision_adapter import VisionAdapter
from greenroom.engine.vision.sample_check import check_sample
from greenroom.engine.vision.vision_language_model import VisionLanguageModel


def open_vision_engine(load: ModelLoad, adapter: Adapter) -> TextEngine:
    """Load a model's weights and all that generates with them, confined to this thread.

    Args:
        adapter: See `open_text_engine`.

    Raises:
        ProblemError: 503 `load_failed`, also if its images cannot be served; 507: there is not enough
            memory for the weights.
        LoadAbandonedError: The load was abandoned.
    """
    sample = adapter.pop_sample() if isinstance(adapter, VisionAdapter) else None

    def features_of(model: VisionLanguageModel) -> ImagePromptEncoder:
        if sample is not None:
            with named_load_errors(load.folder):
                check_sample(model.model, sample, load.folder)
        return ImagePromptEncoder(model)

    return open_text_engine(load, adapter, load_vision_lazily, features_of)

"""Detection of models that write text alone and for which only mlx-vlm has code."""

from __future__ import annotations

from greenroom.engine.catalog.kinds.encoder_kinds import embedding_modules
from greenroom.engine.catalog.kinds.libraries import models_of, text_module
from greenroom.engine.catalog.kinds.other_purposes import PURPOSES
from greenroom.engine.catalog.kinds.vision_kinds import module_of, vision_module


def vlm_text_module(architecture: str) -> str | None:
    """Return the mlx-vlm package of an architecture that only writes text.

    mlx-lm's code comes first, since the table of batching is made with it: None if it has the architecture.
    """
    module = module_of(architecture)
    if text_module(architecture) is not None or module not in models_of("mlx_vlm"):
        return None
    sees = vision_module(architecture) is not None
    return None if sees or module in PURPOSES or module in embedding_modules() else module

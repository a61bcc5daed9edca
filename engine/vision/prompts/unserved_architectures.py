"""Architectures that mlx-vlm implements, but with which Greenroom would answer wrongly."""

from __future__ import annotations

from collections.abc import Mapping

_BOTH_WAYS = "its prompts attend to what comes later in them, which this version does not compute"
"""Reason for bidirectional attention over images or the whole prompt: chunked prefill would be wrong.

mlx-vlm builds moondream's mask but drops it in generation, so its own answers differ from the model's.
"""

_ONE_TOKEN = "mlx-vlm puts all of an image in the place of one token, which is not supported"

_ENCODED = "its decoder reads images through an encoder of their own, which this version does not compute"

_DIFFERS = "its answers about images are not those of mlx-vlm here, for a reason that is not known yet"

_NOT_SERVED: Mapping[str, str] = {
    "deepseek_v41": "its layers share one cache of a form that this version does not keep",
    "diffusion_gemma": "it writes by diffusion, many tokens at once, which this version does not compute",
    "florence2": _ENCODED,
    "hrm_text": _BOTH_WAYS,
    "jina_vlm": _DIFFERS,
    "jvlm": _DIFFERS,
    "mllama": "its layers read images by cross-attention, which this version does not compute",
    "molmo": "its images stand before the whole conversation, which this version does not write",
    "moondream1": _BOTH_WAYS,
    "moondream2": _BOTH_WAYS,
    "moondream3": _BOTH_WAYS,
    "nemotron_parse": _ENCODED,
    "paligemma": _BOTH_WAYS,
    "phi4-siglip": _ONE_TOKEN,
    "phi4_siglip": _ONE_TOKEN,
    "z1t": "its layers keep sums of a form that this version does not keep",
}
"""Reasons by `model_type`."""


def check_architecture(architecture: str) -> None:
    """Refuse an architecture that cannot be served, before anything of the model is read.

    Args:
        architecture: `model_type` of config.json.

    Raises:
        ValueError: One sentence with the reason.
    """
    if (reason := _NOT_SERVED.get(architecture.lower())) is not None:
        raise ValueError(reason)

"""Loading the processor of a model's folder through mlx-vlm, and what cannot be loaded."""

from __future__ import annotations

import hashlib
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from greenroom.engine.catalog.kind_detection import vision_module
from greenroom.engine.catalog.load_failures import named_failures
from greenroom.engine.catalog.model_files import read_optional
from greenroom.engine.loading.libraries import import_model_code
from greenroom.engine.tokenizer.tokenizer import ChatTokenizer
from greenroom.engine.vision.image_processor import ImageProcessor, call_parameters

_CONFIGURATIONS = ("preprocessor_config.json", "processor_config.json", "config.json")


def load_image_processor(
    folder: Path, architecture: str, tokenizer: ChatTokenizer, trust_remote_code: bool = False, name: str = ""
) -> ImageProcessor:
    """Load the image processor of a model's folder; needs no weights. `architecture`: `model_type` of
    config.json. Raises ProblemError (503 `load_failed`).
    """
    with named_failures(folder, name):
        check_architecture(architecture)
    with named_failures(folder, name, "its image processor"):
        from mlx_vlm.utils import load_processor

        import_model_code(f"mlx_vlm.models.{vision_module(architecture)}")  # This registers its processor.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about empty mel filters and deprecated names
            processor = load_processor(folder, add_detokenizer=False, trust_remote_code=trust_remote_code)
        if not takes_images(processor):
            processor = _own_processor(folder, architecture, trust_remote_code)
        _keep_in_numpy(processor)
    takes_audio = isinstance(read_optional(folder / "config.json").get("audio_config"), dict)
    return ImageProcessor(processor, tokenizer, _fingerprint(folder), takes_audio=takes_audio)


def _own_processor(folder: Path, architecture: str, trust_remote_code: bool) -> Any:
    """Return the processor that mlx-vlm's package of an architecture defines.

    If that processor fails, mlx-vlm returns a tokenizer in its place and hides the error.

    Raises:
        Exception: Any error of the processor.
        ValueError: The package has no usable processor.
    """
    package = f"mlx_vlm.models.{vision_module(architecture)}"
    modules = [module for name, module in sys.modules.items() if f"{name}.".startswith(f"{package}.")]
    classes = (value for module in modules for value in vars(module).values() if isinstance(value, type))
    for each in classes:
        if each.__module__.startswith(package) and each.__name__.endswith("Processor"):
            if not (hasattr(each, "from_pretrained") and "images" in call_parameters(each.__call__)):
                continue
            if not hasattr(each, "preprocess"):
                return each.from_pretrained(folder, trust_remote_code=trust_remote_code)
    if hasattr(sys.modules.get(package), "ImageProcessor"):
        raise ValueError(_ONE_TOKEN)
    raise ValueError("there is no processor of images in its folder, and mlx-vlm has none for it")


def takes_images(processor: Any) -> bool:
    return hasattr(processor, "image_processor") or "images" in call_parameters(processor)


def _keep_in_numpy(processor: Any) -> None:
    """Make a processor return NumPy arrays: otherwise large images are copied twice under the GIL."""
    import numpy as np

    def to_array(value: Any) -> Any:
        try:
            return np.array(value) if isinstance(value, list) else value
        except ValueError:  # The rows differ in length.
            return value

    def to_arrays(made: Mapping[str, Any]) -> dict[str, Any]:
        return {name: to_array(value) for name, value in made.items()}

    module = sys.modules[type(processor).__module__]
    if hasattr(module, "to_mlx"):
        module.to_mlx = to_arrays  # type: ignore[attr-defined]


def _fingerprint(folder: Path) -> bytes:
    digest = hashlib.sha256()
    for name in _CONFIGURATIONS:
        path = folder / name
        digest.update(path.read_bytes() if path.is_file() else b"")
    return digest.digest()


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
    """Refuse an architecture that cannot be served, before anything of the model is read. `architecture`:
    `model_type` of config.json. Raises ValueError: one sentence with the reason.
    """
    if (reason := _NOT_SERVED.get(architecture.lower())) is not None:
        raise ValueError(reason)

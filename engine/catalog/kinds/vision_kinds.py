"""Detection of vision-language models that mlx-vlm supports."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from greenroom.engine.catalog.kinds.encoder_kinds import embedding_modules
from greenroom.engine.catalog.kinds.libraries import exports_of, library_constant, library_folder, models_of

_WRITE_NO_TEXT = frozenset(
    {
        "clef",
        "d1",
        "d1_omni",
        "falcon_perception",
        "pp_doclayout_v3",
        "rfdetr",
        "rt_detr_v2",
        "sam3",
        "sam3_1",
        "sam3d_body",
        "sam3d_objects",
        "video_depth_anything",
    }
)
"""Packages of mlx-vlm that take images but output boxes, masks, depths or decisions instead of text."""

_VIDEO_MARKS = ("pixel_values_videos", "video_grid_thw")


def module_of(architecture: str) -> str:
    """Return the name of an architecture's package, as mlx-vlm's `get_model_type` does."""
    remapping: Mapping[str, str] = library_constant("mlx_vlm", "utils.py", "MODEL_REMAPPING")
    return remapping.get(architecture.lower(), architecture.lower())


def vision_module(architecture: str) -> str | None:
    """Return the mlx-vlm package of a vision-language architecture; None if there is none."""
    module = module_of(architecture)
    if module not in models_of("mlx_vlm") or module in _WRITE_NO_TEXT or module in embedding_modules():
        return None
    formats: Mapping[str, str] = library_constant("mlx_vlm", "prompt_utils.py", "MODEL_CONFIG")
    chat_format = formats.get(architecture) or formats.get(module) or "TEXT_ONLY"
    has_tower = not exports_of("mlx_vlm", module).isdisjoint(("VisionModel", "VisionConfig"))
    return module if has_tower or not chat_format.endswith("TEXT_ONLY") else None


def takes_many_images(architecture: str) -> bool:
    """Return whether a prompt may hold more than one image."""
    single = library_constant("mlx_vlm", "prompt_utils.py", "SINGLE_IMAGE_ONLY_MODELS")
    return not {architecture, module_of(architecture)} & set(single)


@functools.cache
def takes_video(architecture: str) -> bool:
    """Return whether the library's code for an architecture accepts video."""
    return _mentions(module_of(architecture), _VIDEO_MARKS)


@functools.cache
def takes_audio(architecture: str) -> bool:
    """Return whether the library's code for an architecture has an audio encoder."""
    exports = exports_of("mlx_vlm", module_of(architecture))
    return not exports.isdisjoint(("AudioModel", "AudioEncoder")) or (
        "AudioConfig" in exports and _mentions(module_of(architecture), ("input_features", "audio_values"))
    )


def _mentions(module: str, words: tuple[str, ...]) -> bool:
    root = library_folder("mlx_vlm")
    folder = None if root is None else root / "models" / module
    if folder is None or not folder.is_dir():
        return False
    sources = (path.read_text(encoding="utf-8") for path in folder.rglob("*.py"))
    return any(word in source for source in sources for word in words)

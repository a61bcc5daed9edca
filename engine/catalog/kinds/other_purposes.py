"""Purposes of those models of mlx-vlm that neither generate text, nor embed, nor rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from greenroom.engine.catalog.kinds.encoder_kinds import classes_of
from greenroom.engine.catalog.kinds.libraries import library_constant

_DRAWS = "it draws images"
_MARKS = "it marks what is in images"
_DECIDES = "it decides between answers that it is given"
_DIFFUSES = "it writes by diffusion, many tokens at once"

_PURPOSES: Mapping[str, str] = {
    **dict.fromkeys(
        (
            *("bonsai", "ernie_image", "flux2", "flux3", "ideogram4", "llada_image", "mage_flow"),
            *("ming_image", "moss_image", "qwen_image", "z_image"),
        ),
        _DRAWS,
    ),
    **dict.fromkeys(
        (
            *("falcon_perception", "pp_doclayout_v3", "rfdetr", "rt_detr_v2", "sam3", "sam3_1"),
            *("sapiens2", "yolo11"),
        ),
        _MARKS,
    ),
    **dict.fromkeys(("clef", "d1", "d1_omni", "decider2", "laya"), _DECIDES),
    **dict.fromkeys(("llada2_moe", "nemotron_labs_diffusion"), _DIFFUSES),
    **dict.fromkeys(("gliner2_5", "openai_privacy_filter"), "it marks words of a text"),
    **dict.fromkeys(("moge3", "video_depth_anything"), "it measures depth in images"),
    **dict.fromkeys(("sam3d_body", "sam3d_objects"), "it makes three-dimensional shapes of images"),
    "dinov2": "it makes features of images",
    "lfm2_encoder": "it fills gaps in texts",
    "minimax_h3": "it makes videos",
    "nemotron_voicechat": "it turns speech into speech",
}
"""Purposes of models that are not served, by the name of their package in mlx-vlm."""

_CLASSES: Mapping[str, str] = {
    "BoundaryExtractor": "gliner2_5",
    "D1Model": "d1",
    "Lfm2BidirectionalForMaskedLM": "lfm2_encoder",
}
"""Packages by class name, for models whose `model_type` is that of another model. Source: mlx-vlm's
`get_model_type`."""

PURPOSES = frozenset(_PURPOSES)
"""Names of the packages of mlx-vlm whose models are not served and have a known purpose."""


def other_purpose(architecture: str, config: Mapping[str, Any]) -> str | None:
    """Return the purpose of an unserved model of mlx-vlm, such as drawing; None for any other model."""
    code = config.get("auto_map")
    named = [str(value).rpartition(".")[2] for value in code.values()] if isinstance(code, dict) else []
    for written in (*classes_of(config), *named):
        if written in _CLASSES:
            return _PURPOSES[_CLASSES[written]]
    remapping: Mapping[str, str] = library_constant("mlx_vlm", "utils.py", "MODEL_REMAPPING")
    return _PURPOSES.get(remapping.get(architecture, architecture))

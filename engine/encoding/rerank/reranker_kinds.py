"""The supported kinds of rerankers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from greenroom.engine.catalog.kinds.encoder_kinds import SAME_CODE, is_classifier

RerankerType = Literal["cross_encoder", "yes_no"]

CLASSIFIERS: Mapping[str, str] = {
    "bert": "bert",
    "modernbert": "modernbert",
    "xlm-roberta": "xlm_roberta",
    **{name: code.replace("-", "_") for name, code in SAME_CODE.items()},
}
"""Architectures of cross-encoders, with the mlx-vlm packages that implement them."""

_YES_NO = ("qwen3",)
"""Architectures of generative rerankers whose prompt is known."""


def reranker_type(config: Mapping[str, Any]) -> RerankerType:
    """Return the kind of a reranker.

    Raises:
        ValueError: Its kind is not supported.
    """
    architecture = str(config.get("model_type"))
    classes = [str(name) for name in config.get("architectures") or ()]
    if architecture in CLASSIFIERS or architecture in CLASSIFIERS.values():
        if not is_classifier(config):
            named = ", ".join(classes) or "nothing"
            raise ValueError(f"it ranks, but its config.json names {named} and no classifier of sequences")
        return "cross_encoder"
    if architecture in _YES_NO and all(name.endswith("ForCausalLM") for name in classes):
        return "yes_no"
    if is_classifier(config):
        known = ", ".join(CLASSIFIERS)
        raise ValueError(f"classifiers of the architecture '{architecture}' are not known here ({known} are)")
    way = f"how a decoder of the architecture '{architecture}' is asked to rank"
    raise ValueError(f"{way} is not known here (Qwen3-Reranker's way is)")

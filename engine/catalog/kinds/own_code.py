"""Detect encoders that bring code of their own: the libraries compute something else under that name.

A model that writes and names code of its own (`auto_map`) is the libraries' model all the same. With encoders
it is often another one: JinaBERT says `bert` and has other positions, others turn a decoder's mask off.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_BASES: Mapping[str, str] = {
    "bert": "Bert",
    "camembert": "Camembert",
    "gemma3_text": "Gemma3(?:Text)?",
    "lfm2": "Lfm2(?:Bidirectional)?",
    "ministral3": "Ministral3",
    "modernbert": "ModernBert",
    "qwen3": "Qwen3",
    "roberta": "Roberta",
    "xlm-roberta": "XLMRoberta",
}
"""Beginnings of the class names of architectures that are computed here."""


def own_encoder(architecture: str, config: Mapping[str, Any]) -> str | None:
    """Return the class of an encoder that is its own code and no architecture's; None if there is none."""
    base, code = _BASES.get(architecture), config.get("auto_map")
    if base is None or not isinstance(code, dict):
        return None
    usual = re.compile(f"{base}(?:Model|For[A-Z][A-Za-z]*)")
    named = [str(value).rpartition(".")[2] for key, value in code.items() if str(key).startswith("AutoModel")]
    return next((name[:80] for name in named if usual.fullmatch(name) is None), None)

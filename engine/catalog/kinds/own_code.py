"""Detection of encoders with code of their own, which the libraries would compute as another architecture.

Generative models that name their own code (`auto_map`) still match the libraries' architecture. Encoders
often do not: JinaBERT declares `bert` but has other positions, others turn off a decoder's causal mask.
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
"""Prefixes of the class names of the supported architectures, as regular expressions."""


def own_encoder(architecture: str, config: Mapping[str, Any]) -> str | None:
    """Return the class name of an encoder's own code if that is another architecture; None if it is not."""
    base, code = _BASES.get(architecture), config.get("auto_map")
    if base is None or not isinstance(code, dict):
        return None
    usual = re.compile(f"{base}(?:Model|For[A-Z][A-Za-z]*)")
    named = [str(value).rpartition(".")[2] for key, value in code.items() if str(key).startswith("AutoModel")]
    return next((name[:80] for name in named if usual.fullmatch(name) is None), None)

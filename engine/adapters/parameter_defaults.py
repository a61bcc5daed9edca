"""Default generation parameters: the model makers' recommendations and the operator's settings."""

from __future__ import annotations

import attrs

from greenroom.engine.catalog.files.json_files import read_optional
from greenroom.engine.tokenizer.tokenizer import ChatTokenizer
from greenroom.schemas.messages.generation import GenerationParameters, Overrides, check
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.settings.settings import Settings

_RECOMMENDED = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
"""Parameters read from generation_config.json; the lengths in it are leftovers of training scripts."""


def recommended_parameters(tokenizer: ChatTokenizer) -> Overrides:
    """Return the recommendations in the model's generation_config.json; skip values out of range."""
    config = read_optional(tokenizer.folder / "generation_config.json")
    recommended = {}
    for name in _RECOMMENDED:
        try:
            recommended[name] = check(name, config[name])
        except (KeyError, ProblemError):
            continue
    return recommended


def configured_parameters(settings: Settings) -> Overrides:
    names = (field.name for field in attrs.fields(GenerationParameters))
    values = {name: getattr(settings, name, None) for name in names}
    return {name: value for name, value in values.items() if value is not None}

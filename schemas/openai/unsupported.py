"""Official parameters of which only neutral values are honoured so far; any other is refused by name.

A parameter that becomes true is taken out of these tables and added to the wire type. Parameters that change
nothing about the answer (`user`, `metadata`, `prompt_cache_key`, …) stand in neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from greenroom.schemas.problems import ProblemError, invalid
from greenroom.schemas.wire import json_type

CHAT: Mapping[str, tuple[Any, ...]] = {
    "functions": ([],),
    "function_call": ("auto", "none"),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "web_search_options": (),
    "moderation": (),
    "verbosity": ("medium",),
    "service_tier": ("auto", "default"),
    "store": (False,),
}

COMPLETIONS: Mapping[str, tuple[Any, ...]] = {
    "best_of": (1,),
    "suffix": ("",),
}


def refuse_unsupported(body: Any, table: Mapping[str, tuple[Any, ...]]) -> None:
    """Let no official parameter be silently ignored.

    Raises:
        ProblemError: 400 `unsupported_parameter` that names the parameter.
    """
    if not isinstance(body, dict):
        return
    for name, neutral in table.items():
        value = body.get(name)
        if value is not None and not any(_same(value, allowed) for allowed in neutral):
            raise _unsupported(name, neutral)


def _same(value: Any, allowed: Any) -> bool:
    # In Python True is 1; in JSON it is another type.
    return json_type(value) == json_type(allowed) and bool(value == allowed)


def _unsupported(name: str, neutral: tuple[Any, ...]) -> ProblemError:
    only = f"; only {' or '.join(map(_shown, neutral))} is accepted" if neutral else ""
    return invalid(f"`{name}` is not supported here with that value{only}.", name, "unsupported_parameter")


def _shown(value: Any) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value).replace("'", '"')

"""Response bodies of `GET /v1/models` and `GET /v1/models/{id}`."""

from __future__ import annotations

from typing import Literal

import attrs

from greenroom.schemas.messages.messages import JsonObject


@attrs.frozen
class Model:
    """An entry of the list of models; `created` is a Unix time in seconds.

    Args:
        capabilities: Capability summary, an extension of OpenAI's list; None if unknown.
    """

    id: str
    object: Literal["model"] = attrs.field(default="model", kw_only=True)
    created: int
    owned_by: str
    capabilities: JsonObject | None = None


@attrs.frozen
class Models:
    """The list of all models."""

    object: Literal["list"] = attrs.field(default="list", kw_only=True)
    data: tuple[Model, ...]

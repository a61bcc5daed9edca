"""What `GET /v1/models` and `GET /v1/models/{id}` answer."""

from __future__ import annotations

from typing import Literal

import attrs

from greenroom.schemas.messages import JsonObject


@attrs.frozen
class Model:
    """One model; `created` is a Unix time in seconds.

    Args:
        capabilities: What it can do, which OpenAI's list does not say; None if that is not known.
    """

    id: str
    object: Literal["model"] = attrs.field(default="model", kw_only=True)
    created: int
    owned_by: str
    capabilities: JsonObject | None = None


@attrs.frozen
class Models:
    """All of them."""

    object: Literal["list"] = attrs.field(default="list", kw_only=True)
    data: tuple[Model, ...]

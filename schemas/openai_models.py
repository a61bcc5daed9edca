"""What `GET /v1/models` and `GET /v1/models/{id}` answer."""

from __future__ import annotations

from typing import Literal

import attrs


@attrs.frozen
class Model:
    """One model; `created` is a Unix time in seconds."""

    id: str
    created: int
    owned_by: str
    object: Literal["model"] = "model"


@attrs.frozen
class Models:
    """All of them."""

    data: tuple[Model, ...]
    object: Literal["list"] = "list"

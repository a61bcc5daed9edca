"""Request bodies about stored chat completions."""

from __future__ import annotations

from typing import Any

import attrs


@attrs.frozen
class UpdateRequest:
    """The body of `POST /v1/chat/completions/{id}`."""

    metadata: Any

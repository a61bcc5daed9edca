"""Time limit on the arrival of a body: the client's own, and that of the whole request."""

from __future__ import annotations

import math
from collections.abc import Callable

import attrs
from quart import Request
from werkzeug.exceptions import RequestTimeout

BODY_LIMIT = "body_limit"
"""Key in the state of a request's scope, of its `BodyLimit`."""


@attrs.frozen
class BodyLimit:
    """The limit of a whole request, as far as its body is concerned.

    Args:
        deadline: Time by Trio's clock.
        late: Function that returns the error for a body that has not arrived by then.
    """

    deadline: float = math.inf
    late: Callable[[], Exception] = RequestTimeout


def body_limit(request: Request, usual: float) -> BodyLimit:
    """Return the limit that ends first.

    Args:
        usual: Time by Trio's clock at which every body must have arrived; then the error is a 408.
    """
    whole: BodyLimit | None = request.scope["state"].get(BODY_LIMIT)
    return whole if whole is not None and whole.deadline <= usual else BodyLimit(usual)

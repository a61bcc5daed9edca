"""Trial parsing, whose malformed calls are not logged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_is_trial: ContextVar[bool] = ContextVar("_is_trial", default=False)


def is_trial() -> bool:
    """Return whether this is a trial, whose text no model has written."""
    return _is_trial.get()


@contextmanager
def trial() -> Iterator[None]:
    """Mark parsing inside the block as a trial."""
    token = _is_trial.set(True)
    try:
        yield
    finally:
        _is_trial.reset(token)

"""Parsing that tries whether a parser fits: what does not is no event of the log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_is_trial: ContextVar[bool] = ContextVar("_is_trial", default=False)


def is_trial() -> bool:
    """Return whether what is parsed here was not written by a model."""
    return _is_trial.get()


@contextmanager
def trial() -> Iterator[None]:
    """Make parsing inside a trial."""
    token = _is_trial.set(True)
    try:
        yield
    finally:
        _is_trial.reset(token)

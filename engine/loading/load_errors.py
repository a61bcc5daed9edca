"""What may come out of loading a model, as the error that its client gets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from greenroom.engine.catalog.files.load_failures import failure_reason
from greenroom.engine.loading.read_weights import LoadAbandonedError
from greenroom.schemas.problems import ProblemError, load_failed


@contextmanager
def named_load_errors(folder: Path) -> Iterator[None]:
    """Turn whatever foreign code raises within, `exit()` and Rust's panics too, into a problem with a reason.

    Raises:
        ProblemError: As raised within; else 503 `load_failed`.
        LoadAbandonedError: As raised within.
    """
    try:
        yield
    except (ProblemError, LoadAbandonedError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise ProblemError(load_failed(folder.name, failure_reason(error, folder))) from error

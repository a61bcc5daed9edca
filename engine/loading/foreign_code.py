"""Refuse to run Python code from a model's folder unless the operator trusts it.

Some of mlx-vlm's processors always tell transformers to trust a folder, so that the code named in its
`auto_map` would run.
"""

from __future__ import annotations

import sys
import threading
from pathlib import PurePath
from types import CodeType

from greenroom.engine.catalog.files.load_failures import OWN_CODE

_COPIES = "transformers_modules"
"""Folder in which transformers runs copies of models' code, and from which it imports them."""


class _Thread(threading.local):
    forbids = False


_thread = _Thread()
_lock = threading.Lock()
_installed = False


class ForeignCodeError(RuntimeError):
    """A library was about to run code of a model's folder."""


def allow_foreign_code(trusted: bool) -> None:
    """Allow this thread to run models' own code from now on, or refuse it.

    Args:
        trusted: True if the operator trusts the models' makers (setting `trust_remote_code`).
    """
    global _installed
    _thread.forbids = not trusted
    with _lock:
        if not _installed:
            sys.addaudithook(_refuse)
            _installed = True


def _refuse(event: str, arguments: tuple[object, ...]) -> None:
    """Raise for `exec` audit events of code from a model's folder, while this thread forbids it."""
    if event != "exec" or not _thread.forbids or not isinstance(arguments[0], CodeType):
        return
    if _COPIES in PurePath(arguments[0].co_filename).parts:
        raise ForeignCodeError(OWN_CODE)

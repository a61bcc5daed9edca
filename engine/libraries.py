"""The model libraries, imported under one process-wide lock: two threads importing them at once fail."""

from __future__ import annotations

import gc
import threading

_lock = threading.Lock()
_imported = False


def import_text_libraries() -> None:
    """Import what a text model needs; whoever comes second waits for the first."""
    global _imported
    with _lock:
        if _imported:
            return
        import mlx_lm  # noqa: F401

        # The libraries leave some hundred thousand objects that never die. Out of the collector's sight,
        # they no longer make a collection at unload hold up every other thread.
        gc.collect()
        gc.freeze()
        _imported = True


def import_grammar_library() -> None:
    """Import what constrains answers."""
    with _lock:
        import llguidance  # noqa: F401

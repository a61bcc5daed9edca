"""The states of a model and their transitions."""

from __future__ import annotations

from enum import StrEnum


class ModelState(StrEnum):
    """The lifecycle state of a model.

    DOWNLOADING is how the pool reports the time in LOADING in which the model's files arrive.
    """

    IDLE = "idle"
    DOWNLOADING = "downloading"
    WAITING = "waiting"
    LOADING = "loading"
    READY = "ready"
    UNLOADING = "unloading"
    ERROR = "error"


DOCUMENTED_NAMES: dict[ModelState, str] = {
    ModelState.IDLE: "Idle",
    ModelState.DOWNLOADING: "Loading",
    ModelState.WAITING: "Switching",
    ModelState.LOADING: "Loading",
    ModelState.READY: "Ready",
    ModelState.UNLOADING: "Switching",
    ModelState.ERROR: "Error",
}
"""Names of the states for clients. A model is "Switching" while it waits for memory or is unloaded."""

TRANSITIONS: dict[ModelState, frozenset[ModelState]] = {
    ModelState.IDLE: frozenset({ModelState.WAITING, ModelState.LOADING, ModelState.ERROR}),
    ModelState.DOWNLOADING: frozenset({ModelState.LOADING, ModelState.UNLOADING, ModelState.ERROR}),
    ModelState.WAITING: frozenset({ModelState.LOADING, ModelState.IDLE, ModelState.ERROR}),
    ModelState.LOADING: frozenset(
        {ModelState.DOWNLOADING, ModelState.READY, ModelState.WAITING, ModelState.UNLOADING, ModelState.ERROR}
    ),
    ModelState.READY: frozenset({ModelState.UNLOADING, ModelState.ERROR}),
    ModelState.UNLOADING: frozenset({ModelState.IDLE, ModelState.ERROR}),
    ModelState.ERROR: frozenset({ModelState.WAITING, ModelState.LOADING, ModelState.IDLE}),
}
"""The states that may follow each state."""

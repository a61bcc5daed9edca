"""The lifecycle of a model, restricted to `greenroom.schemas.models.lifecycle.TRANSITIONS`."""

from __future__ import annotations

import logging
from typing import Any

from greenroom.schemas.models.lifecycle import TRANSITIONS, ModelState


class ImpossibleTransition(Exception):
    """An error for a transition that the lifecycle does not allow."""


class Lifecycle:
    """The state of a model.

    Args:
        state: Initial state.
    """

    def __init__(self, state: ModelState = ModelState.IDLE) -> None:
        self.state = state

    def to(self, state: ModelState) -> None:
        """Move to another state.

        Raises:
            ImpossibleTransition: The table has no such transition.
        """
        if state not in TRANSITIONS[self.state]:
            raise ImpossibleTransition(f"{self.state} to {state}")
        self.state = state

    def move(self, state: ModelState, log: Any, **fields: str) -> None:
        """Move to another state, and log that.

        Args:
            log: Logger of the model.
            fields: Reason, for an error.

        Raises:
            ImpossibleTransition: The table has no such transition.
        """
        before = self.state
        self.to(state)
        level = logging.ERROR if state is ModelState.ERROR else logging.INFO
        log.log(level, "state changed", before=str(before), state=str(state), **fields)
        if before is ModelState.ERROR and state is ModelState.LOADING:
            log.info("restarted")

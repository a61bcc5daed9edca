"""Where one model stands, moving only along `greenroom.schemas.lifecycle.TRANSITIONS`."""

from __future__ import annotations

from greenroom.schemas.lifecycle import TRANSITIONS, ModelState


class ImpossibleTransition(Exception):
    """A model was to take a step that its life does not have."""


class Lifecycle:
    """The state of one model.

    Args:
        state: Where it stands.
    """

    def __init__(self, state: ModelState = ModelState.IDLE) -> None:
        self.state = state

    def to(self, state: ModelState) -> None:
        """Move to another state.

        Raises:
            ImpossibleTransition: The table has no such step.
        """
        if state not in TRANSITIONS[self.state]:
            raise ImpossibleTransition(f"{self.state} to {state}")
        self.state = state

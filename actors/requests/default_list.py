"""Attempts at the models of the list `default`: if one cannot be loaded, the next one answers."""

from __future__ import annotations

import attrs

from greenroom.actors.core.ref import ActorStopped, Ref
from greenroom.actors.pool.lease import Granted, NameFound
from greenroom.actors.pool.tickets import NOT_LOADED
from greenroom.schemas.events.events import Failed
from greenroom.schemas.problems import Problem, ProblemError, draining
from greenroom.schemas.protocols.pool_protocol import Acquire, PoolMessage


class DefaultList:
    """The models of the list that could not answer a request.

    Attributes:
        tried: Their own ids.
    """

    def __init__(self) -> None:
        self.tried: tuple[str, ...] = ()
        self._present: NameFound | None = None

    @property
    def is_open(self) -> bool:
        """True if another model may answer, should the present one not load."""
        return self._present is not None and self._present.replaceable

    def begin(self, found: NameFound) -> None:
        """Record the model that is tried now."""
        self._present = found

    def pass_over(self, problem: Problem) -> bool:
        """Return whether the next model is to be tried, since the present one has failed with a problem."""
        if self._present is None or not self.is_open or problem.code not in NOT_LOADED:
            return False
        self.tried += (self._present.key.model,)
        self._present = None
        return True


async def acquire_first(pool: Ref[PoolMessage], message: Acquire) -> Granted:
    """Return the grant of a model; of several that its name may mean, that of the first that loads.

    Raises:
        ProblemError: None of them loads, or the pool has stopped.
    """
    models = DefaultList()
    while True:
        try:
            replies = await pool.stream(attrs.evolve(message, without=models.tried))
        except ActorStopped:
            raise ProblemError(draining()) from None
        with replies:
            async for event in replies:
                match event:
                    case NameFound():
                        models.begin(event)
                    case Granted():
                        return event
                    case Failed(problem):
                        if not models.pass_over(problem):
                            raise ProblemError(problem)
                        break
            else:
                raise ProblemError(draining())

"""What an attack is made of. Steps say what is done, `attacker` does it."""

from __future__ import annotations

from enum import Enum
from typing import Any

import attrs

from greenroom.tests.attack.json_pieces import Bytes, is_plain, makers_in


class Phase(Enum):
    """How far a request has come when its client leaves."""

    CONNECTED = "connected"
    HEAD = "within its head"
    BODY = "within its body"
    CHUNKED_BODY = "within a chunked body"
    WAITING = "waiting for its model"
    PREFILL = "while its prompt is computed"
    DECODE = "within its answer"
    BETWEEN = "between two requests"
    PIPELINED = "with a second request sent"


class Ending(Enum):
    """How a client leaves."""

    CLOSE = "FIN"
    HALF_CLOSE = "FIN of its sending half, then reading on"
    RESET = "RST"


@attrs.frozen
class Call:
    """Requests that are sent at once and read to their end.

    Args:
        body: JSON with pieces, or `Bytes` to send as they stand.
        copies: How many connections send it.
    """

    path: str
    body: Any
    copies: int = 1
    method: str = "POST"
    headers: tuple[tuple[str, str], ...] = ()


@attrs.frozen
class HangUp:
    """Clients that leave in the middle of a request."""

    phase: Phase
    ending: Ending
    copies: int = 1


@attrs.frozen
class RawBytes:
    """Bytes that need not be HTTP, sent piece by piece."""

    pieces: tuple[Bytes, ...]
    ending: Ending
    copies: int = 1


@attrs.frozen
class SlowReaders:
    """Clients that ask for a stream, and then read nothing of it."""

    copies: int


@attrs.frozen
class Suspension:
    """SIGSTOP, and SIGCONT after that many seconds: a laptop that sleeps."""

    seconds: float


@attrs.frozen
class Shutdown:
    """SIGTERM while requests of every phase are open; the server is started again afterwards."""

    phases: tuple[Phase, ...]


Step = Call | HangUp | RawBytes | SlowReaders | Suspension | Shutdown


@attrs.frozen
class Attack:
    """Steps that begin one after the other, or all at once."""

    steps: tuple[Step, ...]
    at_once: bool = False

    @property
    def ingredients(self) -> frozenset[str]:
        """What it is made of: attacks that share all of it probably show the same fault."""
        return frozenset().union(*map(_ingredients, self.steps))


def _ingredients(step: Step) -> frozenset[str]:
    match step:
        case Call(path, dict() as body):
            return frozenset({path}).union(*(_of_field(name, value) for name, value in body.items()))
        case Call(path, body, headers=headers):
            return frozenset({path, f"{body!r:.40}", *(f"{name}: {value:.40}" for name, value in headers)})
        case HangUp(phase, ending):
            return frozenset({phase.value, ending.value})
        case RawBytes(pieces):
            return frozenset(f"{piece!r:.80}" for piece in pieces)
        case Shutdown(phases):
            return frozenset({"shutdown", *(phase.value for phase in phases)})
    return frozenset({type(step).__name__})


def _of_field(name: str, value: Any) -> frozenset[str]:
    if name in ("model", "max_tokens", "stream") or (name in ("messages", "prompt") and is_plain(value)):
        return frozenset()
    return makers_in(value) or frozenset({f"{name}: {value!r:.40}" if is_plain(value) else name})

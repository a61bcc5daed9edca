"""What an attack is made of. Steps say what is done, `attacker` does it."""

from __future__ import annotations

from enum import Enum
from typing import Any

import attrs

from greenroom.tests.attack.requests.json_pieces import Bytes, is_plain, makers_in


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
        refused: Only a 4xx is right.
    """

    path: str
    body: Any
    copies: int = 1
    method: str = "POST"
    headers: tuple[tuple[str, str], ...] = ()
    refused: bool = False


@attrs.frozen
class FormCall:
    """Multipart forms with a file, sent at once and read to their end.

    Args:
        fields: Names and values that stand before the file.
        file: One of `files.FILES`, or `1 GB` for as many zeros, which are made while they are sent.
        name: That the file claims.
        refused: Only a 4xx is right.
    """

    path: str
    fields: tuple[tuple[str, str], ...]
    file: str
    name: str = "speech.mp3"
    copies: int = 1
    refused: bool = False


@attrs.frozen
class HangUp:
    """Clients that leave in the middle of a request."""

    phase: Phase
    ending: Ending
    copies: int = 1


@attrs.frozen
class Abandoned:
    """Clients that send a whole request, or as much as is taken, and leave.

    Args:
        after: Seconds from the first byte sent.
    """

    call: Call | FormCall
    after: float
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
class SilentReaders:
    """Clients that ask for a stored conversation of so many megabytes, and read nothing of it."""

    megabytes: int
    copies: int


@attrs.frozen
class References:
    """Requests whose input names one stored item of a megabyte again and again."""

    mentions: int
    copies: int


@attrs.frozen
class Suspension:
    """SIGSTOP, and SIGCONT after that many seconds: a laptop that sleeps."""

    seconds: float


@attrs.frozen
class Shutdown:
    """SIGTERM while requests of every phase are open; the server is started again afterwards."""

    phases: tuple[Phase, ...]


Step = (
    Call
    | FormCall
    | HangUp
    | Abandoned
    | RawBytes
    | SlowReaders
    | SilentReaders
    | References
    | Suspension
    | Shutdown
)


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
        case FormCall(path, fields, file, name):
            return frozenset(
                {path, file, *(field for field, _ in fields if field != "model")} | _odd_name(name)
            )
        case Abandoned(call, _, ending):
            return _ingredients(call) | {"abandoned", ending.value}
        case HangUp(phase, ending):
            return frozenset({phase.value, ending.value})
        case RawBytes(pieces):
            return frozenset(f"{piece!r:.80}" for piece in pieces)
        case Shutdown(phases):
            return frozenset({"shutdown", *(phase.value for phase in phases)})
    return frozenset({type(step).__name__})


def _odd_name(name: str) -> frozenset[str]:
    return frozenset() if name == "speech.mp3" else frozenset({f"file name {name:.40}"})


def _of_field(name: str, value: Any) -> frozenset[str]:
    if name in ("model", "max_tokens", "stream") or (name in ("messages", "prompt") and is_plain(value)):
        return frozenset()
    return makers_in(value) or frozenset({f"{name}: {value!r:.40}" if is_plain(value) else name})

"""The steps of an attack; `attacker` carries them out."""

from __future__ import annotations

from enum import Enum
from typing import Any

import attrs

from greenroom.tests.attack.requests.json_pieces import Bytes, is_plain, makers_in


class Phase(Enum):
    """The phase of a request in which its client leaves."""

    CONNECTED = "connected"
    HEAD = "within its head"
    BODY = "within its body"
    CHUNKED_BODY = "within a chunked body"
    WAITING = "waiting for its model"
    PREFILL = "while its prompt is computed"
    DECODE = "within its answer"
    BETWEEN = "between two requests"
    PIPELINED = "with a second request sent"


_LIMITS = ("max_tokens", "max_output_tokens", "max_completion_tokens", "num_predict")
"""Fields that limit an answer, in each protocol."""


class Ending(Enum):
    """The way a client closes its connection."""

    CLOSE = "FIN"
    HALF_CLOSE = "FIN of its sending half, then reading on"
    RESET = "RST"


@attrs.frozen
class Call:
    """Requests sent at once and read to their end.

    Args:
        body: JSON with pieces, or `Bytes` sent unchanged.
        copies: Number of connections that send it.
        refused: True if the server must refuse it with a 4xx.
    """

    path: str
    body: Any
    copies: int = 1
    method: str = "POST"
    headers: tuple[tuple[str, str], ...] = ()
    refused: bool = False

    @property
    def is_bounded(self) -> bool:
        """True unless the hostile part took the place of the answer's limit: it may then take minutes."""
        if not isinstance(self.body, dict):
            return True
        options = self.body.get("options")
        asked = {**self.body, **options} if isinstance(options, dict) else self.body
        generates = not {"messages", "prompt", "input"}.isdisjoint(asked)
        return not generates or any(isinstance(asked.get(name), int) for name in _LIMITS)


@attrs.frozen
class FormCall:
    """Multipart forms with a file, sent at once and read to their end.

    Args:
        fields: Names and values of the fields before the file.
        file: One of `files.FILES`, or `1 GB` for zeros generated while they are sent.
        name: File name in the form.
        refused: True if the server must refuse it with a 4xx.
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
    """Clients that send a whole request, or as much as the server takes, and leave.

    Args:
        after: Time limit of sending, and then of waiting, in seconds.
    """

    call: Call | FormCall
    after: float
    ending: Ending
    copies: int = 1


@attrs.frozen
class RawBytes:
    """Bytes sent in pieces; they need not be HTTP."""

    pieces: tuple[Bytes, ...]
    ending: Ending
    copies: int = 1


@attrs.frozen
class SlowReaders:
    """Clients that request a stream and do not read it."""

    copies: int


@attrs.frozen
class SilentReaders:
    """Clients that request a stored conversation of `megabytes` MB and do not read it."""

    megabytes: int
    copies: int


@attrs.frozen
class References:
    """Requests whose input references one stored item of a megabyte `mentions` times."""

    mentions: int
    copies: int


@attrs.frozen
class LockedStore:
    """Responses to be stored while another process holds the database's lock for `seconds`."""

    seconds: float
    copies: int


@attrs.frozen
class HarmfulSockets:
    """WebSockets that do harm in one of `sockets.HARMS`."""

    harm: str
    copies: int


@attrs.frozen
class SocketMessage:
    """A message on a WebSocket of its own, answered to its end.

    Args:
        body: JSON with pieces, as of a request to `/v1/responses`.
    """

    body: dict[str, Any]
    copies: int = 1


@attrs.frozen
class Suspension:
    """SIGSTOP, and SIGCONT after `seconds`, as when a laptop sleeps."""

    seconds: float


@attrs.frozen
class Shutdown:
    """SIGTERM while requests are open in these phases; the server is started again afterwards."""

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
    | LockedStore
    | HarmfulSockets
    | SocketMessage
    | Suspension
    | Shutdown
)


@attrs.frozen
class Attack:
    """Steps carried out one after another, or all at once."""

    steps: tuple[Step, ...]
    at_once: bool = False

    @property
    def ingredients(self) -> frozenset[str]:
        """Features of the attack; attacks that share all of them probably cause the same fault."""
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
        case SocketMessage(body):
            return frozenset({"SocketMessage"}).union(*(_of_field(name, of) for name, of in body.items()))
        case HarmfulSockets(harm):
            return frozenset({f"socket: {harm}"})
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

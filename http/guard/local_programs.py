"""Programs of this machine that bring no checked key, told apart once their requests take all slots."""

from __future__ import annotations

import os
import socket
import struct
import sys
from contextlib import ExitStack, suppress

import attrs
import trio

from greenroom.http.guard.host_guard import is_loopback

PEER = "peer"
"""Key in the state of a scope, of the other end of a connection within this machine."""

_Ports = tuple[int, int]
_Socket = socket.socket | trio.socket.SocketType


@attrs.define(eq=False)
class Peer:
    """The other end of a connection within this machine.

    Args:
        ports: TCP ports of client and server.
        program: Process group of the client: a program with all that it has started, or a job of a shell;
            None if it is not known, or of another user.
        choices: Answers that the running request wants.
        takes_turns: True if the running request shares a model by turns instead of by slots.
        number: Number of the program in the running request's name; None if it needs none.
    """

    ports: _Ports = (0, 0)
    program: int | None = None
    is_known: bool = False
    choices: int = 1
    takes_turns: bool = False
    number: int | None = None


def peer_of(connection: _Socket) -> Peer | None:
    """Return the other end of an accepted connection; None if it is on another machine."""
    if connection.family == socket.AF_UNIX:
        return Peer(program=_group(_sender(connection)), is_known=True)
    client, server = connection.getpeername(), connection.getsockname()
    return Peer((client[1], server[1])) if is_loopback(client[0]) else None


class LocalPrograms:
    """Numbers the programs whose requests compete.

    To find a program takes milliseconds. So no request waits for that while slots are left, unless it takes
    turns with another one. As long as all that run belong to one program, it needs no number. `slots`:
    answers that run at once.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._running: list[Peer] = []
        self._unknown: set[Peer] = set()
        self._looking = trio.Lock()

    async def number(self, peer: Peer, resources: ExitStack, *, takes_turns: bool = False) -> None:
        """Number the program of a request, which runs until its `resources` close."""
        others = tuple(self._running)
        peer.choices, peer.takes_turns, peer.number = 1, takes_turns, None
        self._running.append(peer)
        resources.callback(self._running.remove, peer)
        waits = takes_turns and any(each.takes_turns for each in others)
        if not waits and sum(each.choices for each in others) < self._slots:
            return
        self._unknown.update(each for each in (*others, peer) if not each.is_known)
        async with self._looking:
            if self._unknown:
                await self._look()
        own = peer.program
        if own and any(own == each.number if each.number else own != each.program for each in others):
            peer.number = own

    async def _look(self) -> None:
        wanted = set(self._unknown)
        found = await trio.to_thread.run_sync(_owners)
        self._unknown -= wanted
        for peer in wanted:
            process = found.get(peer.ports)
            peer.program, peer.is_known = process and _group(process), True


def _owners() -> dict[_Ports, int]:
    """Return the ids of the processes that hold TCP connections, by their own port and the other; those of
    other users are not told to everybody.
    """
    import psutil

    found: dict[_Ports, int] = {}
    # macOS tells the list of all to its administrator alone.
    sources = (psutil,) if sys.platform == "linux" else psutil.process_iter()
    for source in sources:
        with suppress(psutil.Error, OSError):
            for each in source.net_connections("tcp"):
                process = each.pid if source is psutil else source.pid
                if each.raddr and process:
                    found[each.laddr.port, each.raddr.port] = process
    return found


def _sender(connection: _Socket) -> int:
    """Return the process id of the client of a Unix socket."""
    if sys.platform == "darwin":
        return connection.getsockopt(0, 2)  # SOL_LOCAL, LOCAL_PEERPID
    return int(struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0])


def _group(process: int) -> int | None:
    try:
        return os.getpgid(process)
    except OSError:
        return None

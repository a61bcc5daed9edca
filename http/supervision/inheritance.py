"""Sockets and pipe that a server process inherits from its supervising parent or from systemd."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Mapping, MutableMapping

import attrs
import click

VARIABLE = "GREENROOM_CHILD"
"""Variable through which a supervising parent tells its child what it has inherited."""
_FIRST_DESCRIPTOR = 3
"""First of systemd's descriptors (`SD_LISTEN_FDS_START` in sd_listen_fds(3))."""


@attrs.frozen
class ParentLink:
    """A child's link to its supervising parent.

    Args:
        pipe: Descriptor of the pipe for signs of life.
        interval: Seconds between two signs of life.
        left_out: Names of the models that are not loaded before a request wants them.
        restarts: Number of processes that died before this one.
    """

    pipe: int
    interval: float
    left_out: tuple[str, ...] = ()
    restarts: int = 0


@attrs.frozen
class Inheritance:
    """The listening sockets of this process, and its parent; neither if it was started alone."""

    sockets: tuple[socket.socket, ...] = ()
    parent: ParentLink | None = None


def inherit(environment: MutableMapping[str, str]) -> Inheritance:
    """Take over sockets and pipe, and remove their variables, so that this process's own children do not.

    Raises:
        ClickException: systemd has passed something other than listening TCP sockets.
    """
    told = environment.pop(VARIABLE, None)
    activated = {name: environment.pop(name, "") for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")}
    if told is not None:
        fields = json.loads(told)
        sockets, pipe = fields.pop("sockets"), fields.pop("pipe")
        os.set_inheritable(pipe, False)
        link = ParentLink(pipe, fields["interval"], tuple(fields["left_out"]), fields["restarts"])
        return Inheritance(tuple(map(_listening, sockets)), link)
    if activated["LISTEN_PID"] != str(os.getpid()) or not activated["LISTEN_FDS"].isdigit():
        return Inheritance()
    descriptors = range(_FIRST_DESCRIPTOR, _FIRST_DESCRIPTOR + int(activated["LISTEN_FDS"]))
    return Inheritance(tuple(map(_listening, descriptors)))


def variables_for(child: ParentLink, sockets: tuple[socket.socket, ...]) -> Mapping[str, str]:
    """Return the variable that tells a child what it inherits."""
    told = attrs.asdict(child) | {"sockets": [sock.fileno() for sock in sockets]}
    return {VARIABLE: json.dumps(told)}


def _listening(descriptor: int) -> socket.socket:
    """Return an inherited socket, after keeping this process's own children from inheriting it."""
    served = False
    with contextlib.suppress(OSError):
        sock = socket.socket(fileno=descriptor)
        listens = bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
        served = listens and sock.family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX)
        if not served:
            sock.close()
    if not served:
        raise click.ClickException(f"descriptor {descriptor} (LISTEN_FDS) is no listening TCP or Unix socket")
    sock.set_inheritable(False)
    return sock

"""Supervision of `greenroom serve`: the same command again, as a child on this process's sockets."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence

import click

from greenroom.http.supervision.parent_log import ParentLog
from greenroom.http.supervision.silence import SilenceLimits
from greenroom.http.supervision.supervisor import Supervisor
from greenroom.http.supervision.systemd import Systemd
from greenroom.http.transport.bound_sockets import bind_sockets, remove_paths, unix_paths
from greenroom.schemas.settings.settings import Settings


def supervise(
    settings: Settings, inherited: Sequence[socket.socket], limits: SilenceLimits | None = None
) -> int:
    """Run this very command as a child until it needs no restart; return the exit status.

    Args:
        inherited: Listening sockets from systemd; without any, the addresses of the settings are bound.
        limits: Limits on the child's silence.

    Raises:
        ClickException: An address cannot be bound.
    """
    log = ParentLog(settings.log_format, settings.log_level)
    try:
        sockets = list(inherited) or bind_sockets(settings, log.warning)
    except OSError as error:
        from greenroom.http.process.runtime_file import describe_unusable_address

        raise click.ClickException(describe_unusable_address(error)) from error
    command = (sys.executable, *sys.orig_argv[1:])
    paths = [] if inherited else unix_paths(sockets)
    try:
        scheme = "https" if settings.tls_certificate else "http"
        own = Systemd(os.environ), limits or SilenceLimits(), scheme
        return Supervisor(command, sockets, settings.shutdown_timeout, log, *own).run()
    finally:
        remove_paths(paths)

"""Commands forked from a process that has imported the command line, which takes most of a command's time.

A forked command has its own arguments, environment, folder and standard streams, as one that is started.
Linux only: on macOS frameworks do not survive a fork.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

COMMANDS = Path(__file__).resolve().parents[3] / "http" / "commands"
_SENDING = threading.Lock()


def run_forked(
    arguments: Sequence[str], stdin: str, environment: Mapping[str, str], seconds: float
) -> subprocess.CompletedProcess[str]:
    """Run a command of `greenroom` to its end.

    Raises:
        subprocess.TimeoutExpired: It has not ended after these seconds, and is killed.
    """
    pipes = [os.pipe() for _ in range(3)]
    (read_in, write_in), (read_out, write_out), (read_error, write_error) = pipes
    reply, replying = socket.socketpair()
    asked = json.dumps({"arguments": arguments, "environment": dict(environment), "folder": os.getcwd()})
    theirs = [read_in, write_out, write_error, replying.fileno()]
    with _SENDING:
        socket.send_fds(_parent(), [asked.encode() + b"\n"], theirs)
        assert _parent().recv(1), "the process that forks has ended"
    replying.close()
    for descriptor in theirs[:3]:
        os.close(descriptor)
    with ThreadPoolExecutor(3) as threads, reply, reply.makefile() as told:
        threads.submit(_write, write_in, stdin)
        out, error = threads.submit(_read, read_out), threads.submit(_read, read_error)
        pid = int(told.readline())
        reply.settimeout(seconds)
        try:
            status = int(told.readline())
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            raise subprocess.TimeoutExpired(["greenroom", *arguments], seconds) from None
        return subprocess.CompletedProcess(["greenroom", *arguments], status, out.result(), error.result())


def _write(descriptor: int, text: str) -> None:
    with open(descriptor, "w", encoding="utf-8") as pipe:
        try:
            pipe.write(text)
            pipe.flush()
        except BrokenPipeError:
            pipe.detach()
            os.close(descriptor)


def _read(descriptor: int) -> str:
    with open(descriptor, encoding="utf-8") as pipe:
        return pipe.read()


@cache
def _parent() -> socket.socket:
    """Start the process that forks; return the socket that it is asked by. It ends with this process."""
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", __name__, str(theirs.fileno())]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
    theirs.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def _fork_commands(control: socket.socket) -> bool:
    """Fork a command for each message; return True in a command, with all set up, and False at the end."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # none of the children that wait is waited for
    while True:
        message, descriptors, *_ = socket.recv_fds(control, 1 << 16, 4)
        if not message:
            return False
        while not message.endswith(b"\n"):
            message += control.recv(1 << 16)
        if os.fork() == 0:
            break
        for descriptor in descriptors:
            os.close(descriptor)
        control.send(b".")
    control.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    *streams, reply = descriptors
    pid = os.fork()
    if pid == 0:
        os.close(reply)
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
            os.close(descriptor)
        asked = json.loads(message)
        os.environ.clear()
        os.environ.update(asked["environment"])
        os.chdir(asked["folder"])
        sys.argv[1:] = asked["arguments"]
        return True
    for descriptor in streams:
        os.close(descriptor)
    os.write(reply, f"{pid}\n".encode())
    os.write(reply, f"{os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}\n".encode())
    os._exit(0)


def _import_commands() -> None:
    from greenroom.http.process.deferred_imports import deferred_imports

    with deferred_imports():  # as in a command
        importlib.import_module("structlog")
    for file in sorted(COMMANDS.rglob("*.py")):
        place = ".".join(file.relative_to(COMMANDS).with_suffix("").parts)
        importlib.import_module(f"greenroom.http.commands.{place}")
    assert not sys.modules.keys() & {"mlx", "huggingface_hub", "transformers"}, "they read variables once"


if __name__ == "__main__":
    from greenroom.http.command_line import main

    _import_commands()
    if _fork_commands(socket.socket(fileno=int(sys.argv[1]))):
        main()

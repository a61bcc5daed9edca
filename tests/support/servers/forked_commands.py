"""Commands forked from a process that has imported what they need, which takes most of their time.

A forked command has its own arguments, environment, folder and standard streams, as one that is started.
Linux only: on macOS frameworks do not survive a fork.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, NoReturn

COMMAND_LINE = Path(__file__).resolve().parents[3] / "http" / "command_line.py"
_ENVIRONMENT = dict(os.environ)
"""Environment of the processes that fork: that of the tests, before any test has changed it."""
_READ_AT_IMPORT = (
    "HF_",
    "HUGGINGFACE_",
    "MLX_",
    "OMP_",
    "OPENBLAS_",
    "TOKENIZERS_",
    "TQDM_",
    "TRANSFORMERS_",
)
"""Beginnings of the variables that model libraries read when they are imported."""
_SET_AT_IMPORT = "TRANSFORMERS_NO_ADVISORY_WARNINGS"
"""A variable that mlx-lm sets, so that it tells nothing of a command that is to have others."""
_DIGITS = 16
_SENDING = threading.Lock()


class ForkedProcess:
    """A forked command, as `subprocess.Popen` would give it; its stdin is empty unless `writes`.

    Args:
        terminal: Descriptor of a terminal that it is to have for its streams; it is closed here.
        program: Module that runs instead of the command line, in a session of its own and with this process's
            standard error; its argument is the network namespace that it is in.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        *,
        writes: bool = False,
        terminal: int | None = None,
        program: str = "",
    ) -> None:
        self.args = ["greenroom", *arguments]
        self.returncode: int | None = None
        self.stdin: IO[str] | None = None
        self.stdout: IO[str] | None = None
        self.stderr: IO[str] | None = None
        if terminal is None:
            read_in, write_in = os.pipe() if writes else (os.open(os.devnull, os.O_RDONLY), -1)
            read_out, write_out = os.pipe()
            self.stdin = os.fdopen(write_in, "w", encoding="utf-8") if writes else None
            self.stdout = os.fdopen(read_out, encoding="utf-8")
            if program:
                write_error = os.dup(2)
            else:
                read_error, write_error = os.pipe()
                self.stderr = os.fdopen(read_error, encoding="utf-8")
        streams = [read_in, write_out, write_error] if terminal is None else [terminal]
        self._reply, replying = socket.socketpair()
        asked = {"arguments": arguments, "environment": dict(environment), "folder": os.getcwd()}
        asked["program"] = program
        theirs = [*streams, replying.fileno()]
        with _SENDING:
            # Where all is logged, a library must be imported behind the logger, whose level it then sets.
            parent = _parent("debug" not in arguments and _imports(environment) == _imports(_ENVIRONMENT))
            socket.send_fds(parent, [json.dumps(asked).encode() + b"\n"], theirs)
            assert parent.recv(1), "the process that forks has ended"
        replying.close()
        for descriptor in streams:
            os.close(descriptor)
        self.pid = self._read_number()

    def __enter__(self) -> ForkedProcess:
        return self

    def __exit__(self, *_: object) -> None:
        """Wait for its end, as `Popen` does."""
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()
        self.wait()

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit status; negative is the number of a signal.

        Raises:
            subprocess.TimeoutExpired: It has not ended after these seconds.
        """
        if self.returncode is None:
            self._reply.settimeout(timeout)
            try:
                self.returncode = self._read_number()
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0) from None
            self._reply.close()
        return self.returncode

    def _read_number(self) -> int:
        return int(self._reply.recv(_DIGITS))

    def poll(self) -> int | None:
        """Return its exit status; None while it runs."""
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0.0)
        return None

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run_forked(
    arguments: Sequence[str], stdin: str, environment: Mapping[str, str], seconds: float
) -> subprocess.CompletedProcess[str]:
    """Run a command of `greenroom` to its end.

    Raises:
        subprocess.TimeoutExpired: It has not ended after these seconds, and is killed.
    """
    with ForkedProcess(arguments, environment, writes=True) as process, ThreadPoolExecutor(3) as threads:

        def write() -> None:
            assert process.stdin is not None
            with suppress(BrokenPipeError):
                process.stdin.write(stdin)
            with suppress(BrokenPipeError):
                process.stdin.close()

        threads.submit(write)
        assert process.stdout is not None
        assert process.stderr is not None
        out, error = threads.submit(process.stdout.read), threads.submit(process.stderr.read)
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return subprocess.CompletedProcess(process.args, status, out.result(), error.result())


def _imports(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(_READ_AT_IMPORT) and name != _SET_AT_IMPORT
    }


@cache
def _parent(whole: bool) -> socket.socket:
    """Start a process that forks, with the model libraries or without them; return the socket that it is
    asked by. It ends with this process.
    """
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", __name__, str(theirs.fileno()), "whole" if whole else "light"]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], env=_ENVIRONMENT
    )
    theirs.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def _fork() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads: numpy's outlive a fork
        return os.fork()


def _fork_commands(control: socket.socket) -> str:
    """Fork a command for each message; return its module in a command, with all set up, and "" at the end."""
    while True:
        message, descriptors, *_ = socket.recv_fds(control, 1 << 16, 4)
        with suppress(ChildProcessError):  # their seconds are then this process's
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not message:
            return ""
        while not message.endswith(b"\n"):
            message += control.recv(1 << 16)
        if _fork() == 0:
            break
        for descriptor in descriptors:
            os.close(descriptor)
        control.send(b".")
    control.close()
    *streams, reply = descriptors
    pid = _fork()
    if pid == 0:
        os.close(reply)
        if len(streams) == 1:
            os.login_tty(streams[0])
        else:
            for number, descriptor in enumerate(streams):
                os.dup2(descriptor, number)
                os.close(descriptor)
        asked = json.loads(message)
        os.environ.clear()
        os.environ.update(asked["environment"])
        os.chdir(asked["folder"])
        if asked["program"]:
            os.setsid()
            for namespace in asked["arguments"]:
                _enter_namespace(namespace)
            return str(asked["program"])
        sys.argv[:] = [str(COMMAND_LINE), *asked["arguments"]]
        # A supervised server starts its child by these.
        sys.orig_argv[:] = [sys.executable, "-m", "greenroom.http.command_line", *asked["arguments"]]
        return "greenroom.http.command_line"
    for descriptor in streams:
        os.close(descriptor)
    os.write(reply, b"%*d" % (_DIGITS, pid))
    os.write(reply, b"%*d" % (_DIGITS, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))
    os._exit(0)


def _enter_namespace(name: str) -> None:
    """Enter a network namespace that `ip netns` has made."""
    descriptor = os.open(f"/run/netns/{name}", os.O_RDONLY)
    library = ctypes.CDLL(None, use_errno=True)
    if library.setns(descriptor, 0):
        raise OSError(ctypes.get_errno(), f"cannot enter {name}")
    os.close(descriptor)


def _import_commands(*, whole: bool) -> None:
    from greenroom.http.process.deferred_imports import deferred_imports

    with deferred_imports():  # as in a command
        importlib.import_module("structlog")
    commands = COMMAND_LINE.with_name("commands")
    for file in sorted(commands.rglob("*.py")):
        place = ".".join(file.relative_to(commands).with_suffix("").parts)
        importlib.import_module(f"greenroom.http.commands.{place}")
    for module in ("actors.system", "http.app", "http.settings.start_checks", "http.process.shutdown"):
        importlib.import_module(f"greenroom.{module}")
    importlib.import_module("greenroom.http.terminal.session")
    assert not sys.modules.keys() & {"mlx", "huggingface_hub", "transformers"}, "they read variables once"
    if whole:
        from greenroom.engine.loading import libraries

        libraries.prefer_openblas()
        libraries.import_text_libraries()
        libraries.import_encoder_libraries()
        text = ("adapters.adapter", "adapters.raw_prompts", "catalog.description", "text.text_engine")
        for module in (*text, "ranks.rank"):
            importlib.import_module(f"greenroom.engine.{module}")
        importlib.import_module("greenroom.engine.catalog.encoder_kinds").embedding_modules()


def _end(status: int) -> NoReturn:
    """End as the interpreter does, but for taking its modules apart, which takes most of a short command."""
    getattr(threading, "_shutdown")()  # noqa: B009
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


if __name__ == "__main__":
    _import_commands(whole=sys.argv[2] == "whole")
    if program := _fork_commands(socket.socket(fileno=int(sys.argv[1]))):
        try:
            importlib.import_module(program).main()
        except SystemExit as end:
            if not isinstance(end.code, int | None):
                raise
            _end(end.code or 0)

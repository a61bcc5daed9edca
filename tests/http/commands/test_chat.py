"""`greenroom chat`: through a pipe, and at a real terminal."""

from __future__ import annotations

import os
import pty
import select
import time

from greenroom.tests.support.server_processes import GREENROOM, run_greenroom, serving
from greenroom.tests.support.tiny_models import TinyModel


def test_chat_answers_what_is_piped_into_it(tiny_model: TinyModel) -> None:
    arguments = ("chat", str(tiny_model("qwen3")), "--max-tokens", "12", "--temperature", "0")
    first, second = run_greenroom(*arguments, stdin="Hello\n"), run_greenroom(*arguments, stdin="Hello\n")
    assert first.returncode == 0, first.stderr
    assert first.stderr == ""
    assert len(first.stdout) > 1
    assert first.stdout == second.stdout
    with serving(str(tiny_model("qwen3"))) as server:
        remote = run_greenroom("chat", "--url", server.address, *arguments[2:], stdin="Hello\n")
        assert (remote.returncode, remote.stdout) == (0, first.stdout)
        refused = run_greenroom("chat", "nope", "--url", server.address, stdin="Hello\n")
    assert refused.returncode == 1
    assert "'nope' does not exist" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


class Terminal:
    """A process whose stdin, stdout and stderr are a terminal."""

    def __init__(self, *arguments: str) -> None:
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.execvpe(GREENROOM[0], [*GREENROOM, *arguments], {**os.environ, "TERM": "xterm-256color"})
        self.shown = ""

    def write(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def read_until(self, text: str, seconds: float = 300) -> str:
        """Return what is shown from now on, up to `text`."""
        shown, deadline = "", time.monotonic() + seconds
        while text not in shown:
            assert time.monotonic() < deadline, self.shown + shown
            if select.select([self._fd], [], [], 0.1)[0]:
                shown += os.read(self._fd, 4096).decode("utf-8", "replace")
        self.shown += shown
        return shown

    def end(self) -> int:
        """Return the exit status."""
        _, status = os.waitpid(self.pid, 0)
        os.close(self._fd)
        return os.waitstatus_to_exitcode(status)


def test_chat_at_a_terminal_takes_turns_and_stops_an_answer_at_ctrl_c(
    tiny_model: TinyModel,
) -> None:
    terminal = Terminal("chat", str(tiny_model("qwen3")), "--max-tokens", "1500")
    terminal.read_until(">>> ")
    terminal.write("Hello\n")
    terminal.read_until("\x1b[?25h")
    terminal.write("\x03")
    terminal.read_until(">>> ")
    terminal.write("/new\n")
    terminal.read_until(">>> ")
    terminal.write("\x04")
    assert terminal.end() == 0

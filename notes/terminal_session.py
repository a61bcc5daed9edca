"""Recordings of commands at a real terminal, as text.

    python notes/terminal_session.py > notes/terminal-session.txt
    PYTHONPATH=.src python notes/terminal_session.py first > notes/first-session.txt

`greenroom chat` beside a running server, and the first run on machines of 8, 16 and 64 GB (by the setting
`memory_bytes`) with the tests' hub, which states the sizes of the real models, and sends the demo model under
their names. Every line is what the programs wrote; only colours and the cursor's movements are left out.
"""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

GREENROOM = (sys.executable, "-m", "greenroom.http.command_line")
PROMPT = ">>> "
_CONTROLS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]")
_SECONDS = 120


class Typist:
    """A person at a terminal: types after each prompt, and reads what is shown."""

    def __init__(self, *command: str) -> None:
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            os.execvpe(
                command[0], command, {**os.environ, "TERM": "xterm", "NO_COLOR": "1", "COLUMNS": "110"}
            )

    def type(self, text: str) -> None:
        """Type some text."""
        os.write(self._terminal, text.encode())

    def read(self, until: str = "") -> str:
        """Return the shown text up to a mark, or up to the end."""
        shown = b""
        deadline = time.monotonic() + _SECONDS
        while not (until and shown.decode(errors="replace").endswith(until)):
            if time.monotonic() > deadline:
                raise TimeoutError(shown)
            if select.select([self._terminal], [], [], 0.1)[0]:
                try:
                    read = os.read(self._terminal, 4096)
                except OSError:  # as Linux tells the end of a terminal
                    break
                if not read:
                    break
                shown += read
        return _lines(shown.decode(errors="replace"))

    def end(self) -> int:
        """Return the exit status."""
        _, status = os.waitpid(self.pid, 0)
        os.close(self._terminal)
        return os.waitstatus_to_exitcode(status)


def _lines(shown: str) -> str:
    """Return the lines that stay on the screen: spinners are overwritten in place."""
    plain = _CONTROLS.sub("", shown).replace("\r\n", "\n")
    lines = (line.rpartition("\r")[2] for line in plain.split("\n"))
    return "\n".join(line for line in lines if not line.endswith(" …"))


@contextmanager
def server(port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run the server of the demo model."""
    command = (*GREENROOM, "serve", "--port", str(port), "--db", ":memory:")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()  # the welcome
            yield process
        finally:
            process.kill()


def record(port: int) -> Iterator[str]:
    """Yield a session's text, piece by piece."""
    yield f"$ greenroom serve --port {port} &\n"
    with server(port) as process:
        yield '$ echo "Who are you?" | greenroom chat\n'
        asked = subprocess.run(
            [*GREENROOM, "chat"], input=b"Who are you?\n", capture_output=True, timeout=_SECONDS, check=True
        )
        yield asked.stdout.decode() + asked.stderr.decode()
        yield "$ greenroom chat\n"
        typist = Typist(*GREENROOM, "chat")
        yield typist.read(PROMPT)
        for line in ("Hello!", "/new", "What can you do?"):
            typist.type(f"{line}\n")
            yield typist.read(PROMPT)
        process.kill()
        process.wait()
        typist.type("Are you still there?\n")
        yield typist.read(PROMPT)
        typist.type("\x04")
        yield typist.read()
        yield f"$ echo $?\n{typist.end()}\n"
    yield '$ echo "Who are you?" | greenroom chat      # no server runs any more\n'
    alone = subprocess.run(
        [*GREENROOM, "chat"], input=b"Who are you?\n", capture_output=True, timeout=_SECONDS, check=True
    )
    yield alone.stdout.decode() + alone.stderr.decode()


def record_first_runs() -> Iterator[str]:
    """Yield the text of first runs on machines of three sizes, and of what is written there."""
    from greenroom.http.commands.setup import SUGGESTED
    from greenroom.tests.support.servers.hub_server import open_hub

    demo = Path(__file__).resolve().parents[1] / "engine" / "demo" / "model"
    files = {path.name: path.read_bytes() for path in demo.iterdir()}
    models = {model.hub_id: files for _, row in SUGGESTED.values() for model in row}
    yield "The tests' hub states the sizes of the real models, and sends the demo's 1.7 MB for them.\n\n"
    for memory, key in ((8, "\n"), (16, "2"), (64, "2")):
        with open_hub(models) as hub, tempfile.TemporaryDirectory() as home:
            hub.pace = 0.01
            hub.stated = {
                each.hub_id: int(each.gigabytes * 1e9) for _, row in SUGGESTED.values() for each in row
            }
            os.environ |= {"HF_ENDPOINT": hub.address, "HOME": home, "GREENROOM_DB": ":memory:"}
            os.environ["GREENROOM_MEMORY_BYTES"] = f"{SUGGESTED[memory][0]}GB"
            for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "HF_HOME", "HF_HUB_CACHE"):
                os.environ.pop(name, None)
            yield f"# A machine of {memory} GB\n$ greenroom serve\n"
            typist = Typist(*GREENROOM, "serve", "--port", "0")
            told = typist.read("Enter is 1] ")
            typist.type(key)
            told += typist.read("Ctrl-C stops.\r\n")
            typist.type("\x03")
            typist.read()
            typist.end()
            told = "\n".join(line for line in told.split("\n") if not re.match(r"\d{4}-\d\d-\d\d ", line))
            for shown, instead in ((hub.address, "the tests' hub"), (home, "~")):
                told = told.replace(shown, instead)
            yield re.sub(r"(127\.0\.0\.1|\[::1\]):\d+", r"\1:8000", told)
            settings = Path(home, ".config", "greenroom", "settings.toml").read_text()
            yield f"\n$ cat ~/.config/greenroom/settings.toml\n{settings}\n"


def main() -> None:
    """Print a session."""
    if sys.argv[1:] == ["first"]:
        for text in record_first_runs():
            sys.stdout.write(text)
        return
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as runtime:
        os.environ["XDG_RUNTIME_DIR"] = runtime  # no other server of this user's is found
        for text in record(port):
            sys.stdout.write(text.replace(f":{port}", ":8000").replace(f" {port} ", " 8000 "))
            sys.stdout.flush()


if __name__ == "__main__":
    main()

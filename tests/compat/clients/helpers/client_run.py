"""A client of `greenroom launch`, run in a home folder made for it that has files of its user's."""

import hashlib
import os
import shlex
import subprocess

import terminal

FILES = (
    ".gitconfig",
    ".bashrc",
    ".claude.json",
    ".claude/settings.json",
    ".codex/config.toml",
    ".config/opencode/opencode.json",
    ".local/share/opencode/auth.json",
    ".aider.conf.yml",
    ".aider/installs.json",
    ".continue/config.yaml",
    ".cline/data/settings/providers.json",
    ".config/io.datasette.llm/keys.json",
)
"""Files of the user's."""

ALLOWED = {
    "cline": (".local/share/opentui/",),  # the library of its screen keeps its parsers there, by no setting
}
"""Folders outside of Greenroom's that a client makes in the home folder, by client."""
OURS = ".local/share/greenroom/"


class ClientRun:
    """A client in a home folder of its own, before a proxy."""

    def __init__(self, name, model, folder, address, exchanges):
        self.name, self.exchanges = name, exchanges
        self.home, self.project = folder / "home", folder / "project"
        for each in (self.home, self.project, folder / "tmp", folder / "run"):
            each.mkdir(mode=0o700)
        for file in FILES:
            path = self.home / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("{}" if path.suffix == ".json" else "")
        (self.project / "note.txt").write_text("empty\n")
        subprocess.run(("git", "init", "--quiet", self.project), check=True)
        greenroom = shlex.split(os.environ["GREENROOM_COMMAND"])
        self.command = [*greenroom, "launch", "--url", address, "--model", model, name]
        self.variables = {
            "HOME": str(self.home),
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.environ["GREENROOM_PATH"],
            "TMPDIR": str(folder / "tmp"),
            "XDG_RUNTIME_DIR": str(folder / "run"),
            "LANG": "C.UTF-8",
            "TERM": "xterm",
        }

    def start(self, *arguments, **variables):
        """Run the client to its end; return its status and output, and the exchanges meanwhile."""
        before = len(self.exchanges)
        command = [*self.command, *arguments]
        status, text = terminal.run(command, self.project, {**self.variables, **variables})
        self._show(command, text, status, before)
        return status, text, self.exchanges[before:]

    def converse(self, invitation, prompt, *arguments):
        """Type a prompt into the client at a terminal; return 0, what it showed, and the exchanges."""
        before = len(self.exchanges)

        def answered():
            return any(prompt in each.sent and each.is_over for each in self.exchanges[before:])

        command = [*self.command, *arguments]
        text = terminal.converse(command, self.project, self.variables, invitation, prompt, answered)
        self._show(command, text, 0, before)
        return 0, text, self.exchanges[before:]

    def _show(self, command, text, status, before):
        """Print what happened, for the report of a failure."""
        print(f"$ {shlex.join(command)}\n{text}\n[{status}]")
        for exchange in self.exchanges[before:]:
            print(exchange.method, exchange.path, exchange.status, exchange.forced, exchange.pieces)

    def snapshot(self):
        """Return the digests of all files of the home folder except Greenroom's own."""
        found = {}
        for path in sorted(self.home.rglob("*")):
            name = str(path.relative_to(self.home))
            if path.is_dir() or name.startswith((OURS, *ALLOWED.get(self.name, ()))):
                continue
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        return found

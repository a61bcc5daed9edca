"""Every command in README.md and the guide runs as it is written, but for a few that name their reason.

Commands in messages, hints and help are parsed.
"""

from __future__ import annotations

import ast
import itertools
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import attrs
import click
import httpx2
import pytest

from greenroom.http import command_line
from greenroom.tests.support.hostile import pictures, sounds
from greenroom.tests.support.models.model_folders import make_cached
from greenroom.tests.support.models.tiny_encoders import TinyEncoder
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.servers.bounded_waits import bounded
from greenroom.tests.support.servers.free_port import free_port
from greenroom.tests.support.servers.server_processes import ServerProcess

ROOT = Path(__file__).resolve().parents[2]
PAGES = {name: (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "notes/guide.md")}

NOT_RUN = {
    "make test": "runs all tests, this one too",
    'make run EXTRAS="--extra mcp"': "installs packages from the network",
    "make run ACCELERATOR=cuda13": "installs packages from the network",
    "uv tool install .": "installs packages from the network",
    "uv tool install greenroom": "works after the first release",
    "uv tool install 'greenroom[cpu]'": "works after the first release",
    "uv tool install '.[cpu]'": "installs packages from the network",
    "pip install .": "installs packages from the network",
    "pip install '.[cpu]'": "installs packages from the network",
    "uv build --wheel && podman build --tag greenroom --file Containerfile dist": "needs podman",
    "podman run --publish 127.0.0.1:8000:8000 --volume greenroom:/models greenroom serve org/name": (
        "needs podman; test_containerfile.py reads the file"
    ),
    ".venv/bin/pip install opencv-python": "installs packages from the network",
    ".venv/bin/pip install miniaudio": "installs packages from the network",
    "make bench ARGS=http://127.0.0.1:8000": "is run in a checkout; tests/bench runs every scenario",
    "make bench ARGS=MODEL": "is run in a checkout; tests/bench runs every scenario",
    "greenroom service install MODEL": "changes the machine; tests/http/commands/test_service.py runs it",
    "greenroom launch claude": "needs Claude Code; test_launched.py starts a client",
    "greenroom inspect ID": "needs a request's id; test_inspect_routes.py shows one",
    "launchctl bootstrap gui/$UID": "is a command of macOS",
    "sudo pmset -c sleep 0": "is a command of macOS, and changes the machine",
}
"""Documented commands that no test runs, and the reason."""

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROGRAMS = "make|greenroom|curl|uv|pip|python|sqlite3|launchctl|caffeinate|sudo|eval|claude"
INLINE = re.compile(rf"(?:[A-Z_]+=\S+ )*(?:\.venv/bin/)?(?:{PROGRAMS})(?: .+)?")
NAME = re.compile(r"\w+|(?:\.venv/bin/)?greenroom(?: \w+)?")
"""An inline text that is the name of a program or command, not a command to type."""

TOLD = re.compile(r"(?:`|^ *|[|] )(greenroom [a-z-][^`\n]*)", re.MULTILINE)
"""A command in a text: in backticks, or a line of its own; "greenroom prefix" names a file format."""

SERVERS = re.compile(r"make run\b|(?:\.venv/bin/)?greenroom serve\b")
VARIABLES = {"GREENROOM_MAX_TOKENS": "8", "GREENROOM_DEVICE": "cpu"}
STRICT = 'set -euo pipefail\ncurl() { command curl --silent --show-error --fail-with-body "$@"; }\n'


def scripts(page: str) -> Iterator[list[str]]:
    """Return the commands of each shell block of a page, then each inline command."""
    for language, block in FENCE.findall(PAGES[page]):
        if language == "sh":
            lines = block.replace("\\\n", " ").splitlines()
            yield [re.sub(r"\s+# .*", "", line) for line in lines if line]
    for code in re.findall(r"`([^`\n]+)`", FENCE.sub("", PAGES[page])):
        if INLINE.fullmatch(code) and not NAME.fullmatch(code):
            yield [code]


SCRIPTS = [script for page in PAGES for script in scripts(page)]
COMMANDS = {command for script in SCRIPTS for command in script}
STARTED = sorted(command for command in COMMANDS - NOT_RUN.keys() if SERVERS.match(command))


def told_commands() -> Iterator[str]:
    """Yield the commands in the texts of the program, with NAME for what is filled in."""
    for room in ("schemas", "engine", "actors", "http"):
        for file in sorted((ROOT / room).rglob("*.py")):
            source = file.read_text(encoding="utf-8")
            if not re.search(r'greenroom["\s]', source):
                continue
            for node in ast.walk(ast.parse(source)):
                match node:
                    case ast.JoinedStr(values=parts):
                        pieces = [part.value if isinstance(part, ast.Constant) else "NAME" for part in parts]
                    case ast.Constant(value=str(text)):
                        pieces = [text]
                    case _:
                        continue
                yield from TOLD.findall("".join(map(str, pieces)))


def test_commands_that_the_program_tells_parse() -> None:
    commands = sorted({*told_commands()} - {"greenroom prefix"})
    assert len(commands) > 50
    for command in commands:
        check_parses(command)


def check_parses(told: str) -> None:
    words = [*itertools.takewhile(lambda word: word not in "|<>#;", shlex.split(told, comments=True))][1:]
    called: click.Command = command_line.greenroom
    context = click.Context(called)
    while isinstance(called, click.Group) and words and not words[0].startswith("-"):
        name, found, words = called.resolve_command(context, words)
        assert found is not None, told
        called = found
        context = click.Context(found, info_name=name, parent=context, **found.context_settings)
    _, rest, given = called.make_parser(context).parse_args(words)
    assert not rest, told
    if words:  # a command's name alone only names it
        assert not [each.name for each in called.params if each.required and each not in given], told


@attrs.frozen
class Machine:
    """A home with the models and files that the pages name."""

    home: Path
    variables: dict[str, str]

    def run(self, script: str, **variables: str) -> str:
        """Return a shell script's output; fail if a command of it fails."""
        done = subprocess.run(
            ["bash", "-c", STRICT + script],
            cwd=self.home,
            env=self.variables | variables,
            input="Hello\n",
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, (script, done.stdout, done.stderr)
        return done.stdout

    def start(self, command: str) -> subprocess.Popen[str]:
        """Start a documented server on a free port."""
        if command.startswith("make"):
            printed = self.run(f"{command} --dry-run --directory {shlex.quote(str(ROOT))} VENV={sys.prefix}")
            [command] = [
                line for line in printed.splitlines() if line.startswith(f"{sys.prefix}/bin/greenroom")
            ]
        line = command.removeprefix(".venv/bin/").replace("11434", str(free_port()))
        return subprocess.Popen(
            ["bash", "-c", f"exec {line} --port 0 --log-format json"],
            cwd=self.home,
            env=self.variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @contextmanager
    def serving(self, *commands: str) -> Iterator[Sequence[ServerProcess]]:
        """Run servers beside each other; they must end well at SIGTERM."""
        with ExitStack() as stack:
            processes = [stack.enter_context(bounded(self.start(command))) for command in commands]
            servers = [ServerProcess(process) for process in processes]
            yield servers
            for process in processes:
                process.send_signal(signal.SIGTERM)
            assert [server.end() for server in servers] == [0] * len(servers)


@pytest.fixture(scope="module")
def machine(
    tmp_path_factory: pytest.TempPathFactory,
    tiny_model: TinyModel,
    tiny_encoder: TinyEncoder,
    tiny_vision_model: TinyModel,
    tiny_pocket: Path,
    tiny_whisper: Path,
) -> Machine:
    home = tmp_path_factory.mktemp("home")
    for name, folder in (
        *((f"models/{name}", tiny_model("qwen3")) for name in ("Qwen3-4B-4bit", "A", "B")),
        ("my/embedder", tiny_encoder("bert")),
        ("my/reranker", tiny_encoder("bert-rerank")),
        ("my/vision-model", tiny_vision_model("qwen2_vl")),
        ("my/voice", tiny_pocket),
        ("my/whisper", tiny_whisper),
    ):
        (home / name).parent.mkdir(exist_ok=True)
        (home / name).symlink_to(folder)
    make_cached(home / "hub", "mlx-community/Qwen3-4B-4bit")
    (home / "photo.jpg").write_bytes(pictures.photo())
    (home / "meeting.m4a").write_bytes(sounds.tone())
    (home / "house-rules.txt").write_text("Be brief.")
    path = f"{sys.prefix}/bin:{os.environ['PATH']}"
    own = {"HOME": str(home), "HF_HUB_CACHE": str(home / "hub"), "PATH": path}
    return Machine(home, {**os.environ, **VARIABLES, **own})


def test_no_command_escapes_and_no_reason_is_left_over() -> None:
    for page, text in PAGES.items():
        assert {language for language, _ in FENCE.findall(text)} <= {"sh", "python", "xml", "ini", "json"}, (
            page
        )
        assert re.findall(r"^(?: {4}|\t)\S.*", FENCE.sub("", text), re.MULTILINE) == [], page
    assert NOT_RUN.keys() <= COMMANDS
    assert len(COMMANDS) > len(NOT_RUN) + 15
    assert len(NOT_RUN) <= 20


@pytest.mark.deep
def test_every_documented_server_starts(machine: Machine) -> None:
    assert len(STARTED) >= 6
    with machine.serving(*STARTED) as servers:
        for server in servers:
            assert httpx2.get(f"{server.address}/livez", timeout=600).status_code == 200


@pytest.mark.deep
def test_everything_else_on_the_pages_runs(machine: Machine) -> None:
    models = "my/embedder my/reranker my/voice my/whisper"
    with machine.serving(f"greenroom serve ~/models/Qwen3-4B-4bit {models}") as [server]:
        at = server.address.removeprefix("http://")
        for script in SCRIPTS:
            left = [command for command in script if command not in NOT_RUN and command not in STARTED]
            if left:
                text = "\n".join(left).replace("COMMAND", "embed").replace("localhost:8000", at)
                machine.run(text)
        assert (machine.home / "morning.mp3").stat().st_size > 1_000
        examples = [
            code for text in PAGES.values() for language, code in FENCE.findall(text) if language == "python"
        ]
        assert len(examples) == 1
        for code in examples:
            assert machine.run('python -c "$CODE"', CODE=code.replace("localhost:8000", at))

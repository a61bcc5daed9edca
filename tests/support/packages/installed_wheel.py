"""Install the wheel of dist/ into new environments, and use it there: `make install-check`.

python -m greenroom.tests.support.packages.installed_wheel dist 3.11 3.14
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from greenroom.tests.support.packages.locked import UV, exported

_EVERY_MODULE = """
import importlib, pathlib, greenroom.api
[root] = greenroom.__path__
paths = [path.relative_to(root) for path in pathlib.Path(root).rglob("*.py") if path.name != "__main__.py"]
missing = set()
for path in sorted(paths):
    try:
        importlib.import_module(".".join(("greenroom", *path.with_suffix("").parts)))
    except ModuleNotFoundError as error:
        missing.add(error.name.partition(".")[0])
print(len(paths), *sorted(missing))
"""
_OF_EXTRAS = {"mcp", "mcp_types", "mlx_embeddings", "pytest"}
"""Libraries of extras and of tests, which are imported where they are used alone."""
_SECONDS = 900


def check(wheel: Path, python: str, home: Path) -> str:
    """Install a wheel with the locked packages for a Python; return a row of what was seen.

    Raises:
        AssertionError: Something is missing; the message says what.
        subprocess.CalledProcessError: A command fails.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"HOME": str(home), "XDG_RUNTIME_DIR": str(home), "HF_HUB_OFFLINE": "1"}
    pins = home / "pins.txt"
    pins.write_text("\n".join(map(str, exported("cpu"))))
    venv, run = home / "venv", (UV, "--quiet")
    subprocess.run([*run, "venv", "--python", _find(python), venv], check=True)
    into = ("--python", venv / "bin" / "python", "--constraints", pins)
    subprocess.run(
        [*run, "pip", "install", *into, f"greenroom[cpu] @ {wheel.as_uri()}"], check=True, cwd=home
    )

    def called(*words: str) -> str:
        command = [str(venv / "bin" / words[0]), *words[1:]]
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=home, env=environment, timeout=_SECONDS
        )
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    version, modules = called("greenroom", "--version"), called("python", "-c", _EVERY_MODULE)
    count, *missing = modules.split()
    assert set(missing) <= _OF_EXTRAS, missing
    command = [
        str(venv / "bin" / "python"),
        "-m",
        "greenroom",
        "serve",
        "--port",
        "0",
        "--log-format",
        "json",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=home, env=environment) as server:
        try:
            assert server.stderr is not None
            told = (json.loads(line) for line in server.stderr)
            address = next(line["addresses"][0] for line in told if line["event"] == "listening")
            page = _read(f"{address}/").decode()
            parts = [
                part
                for part in re.findall(r'(?:src|href)="([^"]+\.(?:js|css|svg))"', page)
                if _read(f"{address}/{part}")
            ]
            launched = called("greenroom", "launch", "--url", address, "--print", "codex")
            answer = _chat(address)
        finally:
            server.terminate()
    assert len(parts) > 1, page
    assert address in launched, launched
    return f"| {python} | {version} | {count} | {len(parts)} | {answer} |"


def _find(version: str) -> str:
    """Return a Python of a version: as `make test-all` finds it, else by the name that uv can download."""
    own = sorted(Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/python"))
    return str(own[-1]) if own else shutil.which(f"python{version}") or version


def _read(address: str, body: bytes | None = None) -> bytes:
    wish = urllib.request.Request(
        address, body, {"content-type": "application/json", "accept": "text/html, */*"}
    )
    with urllib.request.urlopen(wish, timeout=_SECONDS) as answer:
        read: bytes = answer.read()
        return read


def _chat(address: str) -> str:
    body = {"model": "default", "messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 12}
    answer = json.loads(_read(f"{address}/v1/chat/completions", json.dumps(body).encode()))
    return str(answer["choices"][0]["message"]["content"])


def main(folder: str, pythons: Sequence[str]) -> None:
    """Print a table with a row for each Python."""
    [wheel] = Path(folder).resolve().glob("greenroom-*.whl")
    print(
        "| Python | version | modules imported | parts of the page | answer |\n|---|---|---|---|---|",
        flush=True,
    )
    for python in pythons:
        with tempfile.TemporaryDirectory(prefix="greenroom-installed-") as home:
            print(check(wheel, python, Path(home)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])

"""Virtual environments of clients, one folder each, made once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from greenroom.tests.compat.client_table import Client

ROOT = Path(__file__).resolve().parents[2]
PYTEST = "pytest==9.2.0"


def environment_of(client: Client) -> Path:
    """Return the Python of a client's environment, which is rebuilt when its packages change.

    Raises:
        subprocess.CalledProcessError: Installing a package failed; uv has printed the reason.
    """
    folder = ROOT / f".venv-compat-{client.name}"
    python, stamp = folder / "bin" / "python", folder / "packages.txt"
    needed = "\n".join((PYTEST, *client.packages))
    if not stamp.exists() or stamp.read_text() != needed:
        uv = str(Path(sys.executable).with_name("uv"))
        _run(uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder))
        _run(uv, "pip", "install", "--quiet", "--python", str(python), PYTEST, *client.packages)
        stamp.write_text(needed)
    return python


def _run(*command: str) -> None:
    subprocess.run(command, check=True)

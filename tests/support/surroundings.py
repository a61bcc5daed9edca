"""Isolation of test runs from the caller's environment."""

from __future__ import annotations

import os
import signal
from pathlib import Path

CALLERS_ENVIRONMENT = dict(os.environ)
"""Environment of the caller, for tools that need its proxies and certificates."""

FOREIGN = {
    *("CLICOLOR", "CLICOLOR_FORCE", "COLUMNS", "FORCE_COLOR", "LINES", "NO_COLOR"),
    *("TTY_COMPATIBLE", "TTY_INTERACTIVE", "TQDM_DISABLE", "LANGUAGE"),
    *("MAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "MFLAGS"),
    # With these pytest compares whatever differs line by line, which takes for ever for large values.
    *("CI", "BUILD_NUMBER"),
    *("PYTHONDEVMODE", "PYTHONIOENCODING", "PYTHONOPTIMIZE", "PYTHONWARNINGS"),
    # Every process would compile the libraries anew, which takes longer than most commands.
    "PYTHONDONTWRITEBYTECODE",
}
FOREIGN_PREFIXES = ("GREENROOM_", "HF_", "HUGGINGFACE_", "MLX_", "OPENAI_", "TOKENIZERS_", "TRANSFORMERS_")


def neutralize(home: Path) -> None:
    """Remove differences between shells, terminals and machines, for this process and its children.

    Must be called before any model library is imported, since those read their variables once.

    Args:
        home: Empty folder for settings and downloaded models.
    """
    for name in list(os.environ):
        if name in FOREIGN or name.startswith(FOREIGN_PREFIXES):
            del os.environ[name]
    os.environ |= {
        "HF_HOME": str(home / "hub"),
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_CACHE_HOME": str(home / "cache"),
        "XDG_DATA_HOME": str(home / "data"),
        "XDG_RUNTIME_DIR": str(home / "runtime"),
        "NO_PROXY": "*",
        "no_proxy": "*",
        "LC_ALL": "C.UTF-8",
        "TERM": "dumb",
        # On the CPU, MLX compiles kernels with g++, which takes half a second for each and for every test.
        "MLX_DISABLE_COMPILE": "1",
    }
    os.umask(0o022)
    # Background jobs of scripts start with SIGINT ignored, and those under nohup with SIGHUP ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())

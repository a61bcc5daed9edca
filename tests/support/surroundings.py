"""What a test run inherits from whoever starts it, and how to be rid of it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

CALLERS_ENVIRONMENT = dict(os.environ)
"""The environment that the run was started with: for tools that need its proxies and certificates."""

FOREIGN = {
    *("CLICOLOR", "CLICOLOR_FORCE", "COLUMNS", "FORCE_COLOR", "LINES", "NO_COLOR"),
    *("TTY_COMPATIBLE", "TTY_INTERACTIVE", "TQDM_DISABLE", "LANGUAGE"),
    *("PYTHONDEVMODE", "PYTHONIOENCODING", "PYTHONOPTIMIZE", "PYTHONWARNINGS"),
}
FOREIGN_PREFIXES = ("GREENROOM_", "HF_", "HUGGINGFACE_", "MLX_", "OPENAI_", "TOKENIZERS_", "TRANSFORMERS_")


def neutralize(home: Path) -> None:
    """Undo what differs between shells, terminals and machines, for this process and those that it starts.

    Must run before any model library is imported: they read their variables once.

    Args:
        home: An empty folder; settings and downloaded models are looked for in it.
    """
    for name in list(os.environ):
        if name in FOREIGN or name.startswith(FOREIGN_PREFIXES):
            del os.environ[name]
    os.environ |= {
        "HF_HOME": str(home / "hub"),
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_CACHE_HOME": str(home / "cache"),
        "XDG_DATA_HOME": str(home / "data"),
        "NO_PROXY": "*",
        "no_proxy": "*",
        "LC_ALL": "C.UTF-8",
        "TERM": "dumb",
        # MLX compiles kernels with g++ on the CPU: half a second each, which tests would pay over and over.
        "MLX_DISABLE_COMPILE": "1",
    }
    os.umask(0o022)
    # A job in the background of a script begins with SIGINT ignored, one under nohup with SIGHUP.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())

"""Reading the small JSON files of a model's folder, which are not to be trusted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_MAX_BYTES = 16 * 1024 * 1024
"""Bytes; real configurations have a few thousand."""


def read_json_object(path: Path) -> dict[str, Any]:
    """Return the object that a file holds.

    Raises:
        ValueError: One sentence about what is wrong with the file.
    """
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ValueError(f"{path.name} is larger than {_MAX_BYTES // 2**20} MiB")
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise ValueError(f"there is no {path.name} in its folder") from None
    except OSError as error:
        raise ValueError(f"{path.name} cannot be read ({error.strerror or type(error).__name__})") from error
    except RecursionError:
        raise ValueError(f"{path.name} is nested too deeply") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path.name} is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{path.name} is not JSON ({error})") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path.name} holds no JSON object")
    return value


def read_optional(path: Path) -> dict[str, Any]:
    """Return the object that a file holds; an empty one if the model lacks the file or has it broken."""
    try:
        return read_json_object(path)
    except ValueError:
        return {}

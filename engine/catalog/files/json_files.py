"""Reading of the small, untrusted JSON files in a model's folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from greenroom.engine.catalog.files.regular_files import MAX_LISTING_BYTES, limit_of, read_regular


def read_json_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file.

    Raises:
        ValueError: One sentence that describes the fault.
    """
    value = read_json(path)
    if not isinstance(value, dict):
        raise ValueError(f"{path.name} does not hold a JSON object")
    return value


def read_json(path: Path) -> Any:
    """Return the JSON value in a file.

    Raises:
        ValueError: One sentence that describes the fault.
    """
    try:
        limit = limit_of(path.name) or MAX_LISTING_BYTES
        return json.loads(read_regular(path, min(limit, MAX_LISTING_BYTES)))
    except FileNotFoundError:
        raise ValueError(f"there is no {path.name} in its folder") from None
    except RecursionError:
        raise ValueError(f"{path.name} is nested too deeply") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path.name} is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{path.name} is not JSON ({error})") from None


def read_optional(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; an empty one if the file is missing or invalid."""
    try:
        return read_json_object(path)
    except ValueError:
        return {}

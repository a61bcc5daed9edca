"""Check that the folders that an operator names hold models."""

from __future__ import annotations

import re

from greenroom.engine.catalog.entries import resolve_folder
from greenroom.engine.catalog.files import folder_contents

_HALF_HUB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""Pattern of half a hub id: the owner or the name alone."""


def why_no_model(model: str) -> str | None:
    """Return the reason why a folder that an operator named holds no model.

    Returns:
        A sentence without its full stop; None for hub ids, and for folders with a config.json.
    """
    folder = resolve_folder(model)
    if folder is None or (folder / "config.json").is_file():
        return None
    if folder.is_dir():
        return f"'{model}' holds no model: {folder_contents.why_no_model(folder)}"
    if folder.exists():
        return f"'{model}' is a file, and a model is a folder with a config.json"
    hint = " (a hub id is OWNER/NAME)" if _HALF_HUB_ID.fullmatch(model) else ""
    return f"there is no folder '{model}' with a config.json{hint}"

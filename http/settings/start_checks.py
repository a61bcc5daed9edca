"""What can be wrong with settings beyond each one's own range, found before the first request does."""

from __future__ import annotations

import tempfile
from pathlib import Path

from greenroom.http.settings.sources import BadSettingError
from greenroom.schemas.settings import Settings


def check_models(settings: Settings) -> None:
    """Refuse a folder that holds no model.

    Raises:
        BadSettingError: Names it.
    """
    from greenroom.http.command_line import is_missing

    for model in settings.models:
        if is_missing(model):
            raise BadSettingError(f"models: there is no folder '{model}' with a config.json")


def check_speculation(settings: Settings) -> None:
    """Refuse drafts by a model that is not named or not there, and a model that would draft nothing.

    Raises:
        BadSettingError: Says which.
    """
    from greenroom.http.command_line import is_missing

    draft = settings.draft_model
    if draft is None and settings.speculation == "draft":
        raise BadSettingError("speculation = 'draft': draft_model has to name the model that drafts")
    if draft is not None and settings.speculation == "lookup":
        raise BadSettingError(
            "speculation = 'lookup': the draft_model would draft nothing; leave one of them out"
        )
    if draft is not None and is_missing(draft):
        raise BadSettingError(f"draft_model: there is no folder '{draft}' with a config.json")


def check_device(settings: Settings) -> None:
    """Refuse a device that this machine does not have; MLX is imported only if one was asked for.

    Raises:
        BadSettingError: Names the device.
    """
    if settings.device == "gpu":
        from greenroom.http.command_line import has_gpu

        if not has_gpu():
            raise BadSettingError("device = 'gpu': MLX finds no GPU on this machine")


def check_prefix_folder(settings: Settings) -> None:
    """Make the folder of computed prompts, and refuse one that cannot be written to.

    Raises:
        BadSettingError: Says why.
    """
    if settings.prefix_cache_dir is None:
        return
    if not settings.prefix_cache_bytes:
        raise BadSettingError("prefix_cache_dir: needs memory too, but prefix_cache_bytes is 0")
    folder = settings.prefix_cache_dir
    try:
        path = Path(folder).expanduser()
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadSettingError(f"prefix_cache_dir = {folder!r}: cannot be written to ({reason})") from error

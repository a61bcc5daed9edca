"""What can be wrong with settings beyond each one's own range, found before the first request does."""

from __future__ import annotations

from greenroom.http.settings_sources import BadSettingError
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


def check_device(settings: Settings) -> None:
    """Refuse a device that this machine does not have; MLX is imported only if one was asked for.

    Raises:
        BadSettingError: Names the device.
    """
    if settings.device == "gpu":
        from greenroom.http.command_line import has_gpu

        if not has_gpu():
            raise BadSettingError("device = 'gpu': MLX finds no GPU on this machine")

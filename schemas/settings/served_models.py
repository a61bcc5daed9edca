"""Settings of the served models."""

from __future__ import annotations

from typing import Literal, get_args

import attrs

from greenroom.schemas.settings.setting_fields import setting

Wakefulness = Literal["auto", "on", "off"]
"""The choice to keep the machine awake while requests run; `auto` means on a Mac."""


@attrs.frozen(slots=False)
class ServedModels:
    """Settings of the served models."""

    models: tuple[str, ...] = setting(
        (), "Hub ids or local folders of the models to serve; the first is also called `default`."
    )
    model_dir: tuple[str, ...] = setting(
        (), "Folders with models' folders, as `NAME` or `OWNER/NAME`; all complete models in them are served."
    )
    default: tuple[str, ...] = setting(
        (), "Models that `default` means: the first that can be loaded (default: the first model)."
    )
    allow_downloads: bool = setting(
        False,
        "Download models that requests name by hub id; two at a time, and never with `trust_remote_code`.",
    )
    max_context: int | None = setting(
        None, "Longest context of every model, in tokens (default: the model's own).", low=16
    )
    max_loaded_models: int | None = setting(None, "Models kept loaded at once (default: any number).", low=1)
    tool_injection: bool = setting(
        True, "Describe tools in the prompt if a model's template cannot; when off, such requests are a 400."
    )
    system_prompt: str | None = setting(
        None, "File with the system message of conversations that have none, in any protocol."
    )
    keep_awake: Wakefulness = setting(
        "auto",
        "Keep the machine awake while requests run and 30 s longer, with `caffeinate` or `systemd-inhibit`; "
        "`auto` does so on a Mac.",
        one_of=get_args(Wakefulness),
    )
    trust_remote_code: bool = setting(False, "Let a model's folder run its own Python code.")

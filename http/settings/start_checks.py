"""Checks of settings against this machine at start-up, beyond each setting's own range."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from greenroom.http.guard.request_deadlines import parse_request_timeouts
from greenroom.http.settings.known_models import KnownModels
from greenroom.http.settings.sources import BadSettingError
from greenroom.http.transport.certificates import server_context
from greenroom.schemas.settings.listen_address import parse_listen_address
from greenroom.schemas.settings.settings import Settings


def check_at_start(settings: Settings, local: KnownModels) -> None:
    """Refuse settings that this machine cannot serve, and create the folder of the prefix cache.

    Raises:
        BadSettingError: Names the setting and the reason.
    """
    if not local.can_compute():
        raise click.ClickException(
            "MLX has no backend on this machine: install Greenroom with [cpu], [cuda12] or [cuda13], "
            "for example by: uv tool install '.[cpu]'"
        )
    _check_models(settings, local)
    _check_names(settings, local)
    _check_listen(settings)
    _check_timeouts(settings)
    if settings.device == "gpu" and not local.has_gpu():
        raise BadSettingError("device = 'gpu': MLX finds no GPU on this machine")
    if (complaint := local.find_bad_file(settings)) is not None:
        raise BadSettingError(complaint)
    if (complaint := local.why_pins_do_not_fit(settings)) is not None:
        raise BadSettingError(f"model.pinned: {complaint}")
    _check_prefix_cache_dir(settings)
    _check_certificate(settings)
    for own in (settings, *(settings.applied_to(name) for name, _ in settings.model_settings)):
        _check_speculation(own, local)


def _check_models(settings: Settings, local: KnownModels) -> None:
    """Refuse names that mean nothing, and folders that hold no model if no other is named."""
    faults = {model: why for model in settings.models if (why := local.why_no_model(model)) is not None}
    for model, why in faults.items():
        if local.is_missing(model) or len(faults) == len(set(settings.models)):
            raise BadSettingError(f"models: {why}")
    if faults:
        from greenroom.schemas.logs import get_logger

        for why in faults.values():
            get_logger().warning("model unusable", reason=why)


def _check_names(settings: Settings, local: KnownModels) -> None:
    """Refuse names that mean no model, or two things at once."""
    profiles = settings.all_profiles
    meanings = [
        *((f'model."{model}".alias: {alias!r}', model) for alias, model in settings.aliases),
        *((f'profiles."{name}": its model', profile.model) for name, profile in profiles.items()),
        *(("default: it", model) for model in settings.default),
    ]
    for place, model in meanings:
        if not model:
            raise BadSettingError(f"{place} is not named: write model = ...")
    unknown = local.find_unknown(settings, {model for _, model in meanings}) if meanings else set()
    for place, model in meanings:
        if model in unknown:
            raise BadSettingError(f"{place} means {model!r}, which is none of the models here")
    if (meanings or settings.model_dir) and (conflict := local.find_conflict(settings)) is not None:
        raise BadSettingError(f"{conflict}: rename one of them")
    if settings.allow_downloads and settings.trust_remote_code:
        raise BadSettingError(
            "allow_downloads: trust_remote_code would run code that requests bring; leave one of them out"
        )


def _check_listen(settings: Settings) -> None:
    for address in settings.listen:
        try:
            parse_listen_address(address)
        except ValueError as problem:
            example = "for example 127.0.0.1:11434 or unix:/run/greenroom.sock"
            raise BadSettingError(f"listen = {address!r}: {problem}, {example}") from None


def _check_timeouts(settings: Settings) -> None:
    for limit in settings.request_timeout:
        try:
            parse_request_timeouts([limit])
        except ValueError as problem:
            raise BadSettingError(f"request_timeout = {limit!r}: {problem}") from None


def _check_speculation(settings: Settings, local: KnownModels) -> None:
    draft = settings.draft_model
    if draft is None and settings.speculation == "draft":
        raise BadSettingError("speculation = 'draft': draft_model must name the draft model")
    if draft is not None and settings.speculation == "lookup":
        raise BadSettingError("speculation = 'lookup' does not use draft_model: leave one of them out")
    if draft is not None and (why := local.why_no_model(draft)) is not None:
        raise BadSettingError(f"draft_model: {why}")


def _check_certificate(settings: Settings) -> None:
    try:
        server_context(settings)
    except (OSError, ValueError) as error:
        named = (
            f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else error
        )
        raise BadSettingError(f"tls_certificate: {named}") from error


def _check_prefix_cache_dir(settings: Settings) -> None:
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

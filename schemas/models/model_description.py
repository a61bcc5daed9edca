"""Descriptions of models that need no loading."""

from __future__ import annotations

import math
from typing import Any

import attrs

from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.models.capabilities import CapabilityRecord, ModelType, capability_summary
from greenroom.schemas.models.lifecycle import DOCUMENTED_NAMES, ModelState
from greenroom.schemas.problems import Problem
from greenroom.schemas.settings.setting_groups import GenerationDefaults
from greenroom.schemas.settings.settings import SettingInForce


@attrs.frozen
class ModelDescription:
    """The description of an available model. Fields that its files do not reveal are empty.

    Args:
        created: Unix time in seconds.
        nbytes: Size of its files in bytes.
        record: Capabilities; None if its files are missing or unusable.
        problem: The reason why the files are unusable.
        quantization: Bits per weight (`4-bit`), or the weights' type.
        describes_tools: True if the template has a place for tools.
        supports_reasoning: True if the template supports reasoning.
        fills_gaps: True if the vocabulary has fill-in-the-middle tokens.
        generation: Contents of its `generation_config.json`.
        notices: Warnings for the operator, as sentences.
        model: The model's own id, if `id` is an alias or a profile.
        need: Memory that a load needs; None if the files do not tell.
        fits: True if an empty server admits it; None if unknown.
        refused: Reason why none of its loads will succeed, although its kind is known; None if there is none.
        parsers: Ids of the parsers of tool calls and of reasoning; None lets the template decide.
        is_adapter: True if it is a LoRA adapter of `model`; size and folder are then its own.
    """

    id: str
    created: int
    nbytes: int = 0
    record: CapabilityRecord | None = None
    problem: Problem | None = None
    parameters: int | None = None
    quantization: str = ""
    template: str = ""
    describes_tools: bool = False
    supports_reasoning: bool = False
    fills_gaps: bool = False
    generation: JsonObject = attrs.field(factory=dict)
    folder: str | None = None
    notices: tuple[str, ...] = ()
    model: str = ""
    owned_by: str = "greenroom"
    need: MemoryNeed | None = None
    fits: bool | None = None
    refused: Problem | None = None
    parsers: tuple[str | None, str | None] = (None, None)
    settings: tuple[SettingInForce, ...] = ()
    is_adapter: bool = False

    @property
    def takes_tools(self) -> bool | None:
        """True if the model is known to call tools: by a probe, else by its template. None if unknown."""
        if self.record is None or self.record.model_type not in ("text", "vision"):
            return None if self.record is None else False
        probed = self.record.probed
        return self.describes_tools if probed is None else probed.tool_parser_id is not None

    @property
    def thinks(self) -> bool | None:
        """True if the model is known to reason: by a probe, else by its template. None if unknown."""
        if self.record is None or self.record.model_type not in ("text", "vision"):
            return None if self.record is None else False
        probed = self.record.probed
        observed = None if probed is None else probed.supports_thinking
        return self.supports_reasoning if observed is None else observed

    @property
    def switches_thinking(self) -> bool | None:
        """True if a probe has seen reasoning switched off, False if that failed; None if unknown."""
        probed = None if self.record is None else self.record.probed
        return None if probed is None else probed.supports_toggle

    @property
    def generation_defaults(self) -> dict[str, Any]:
        """Generation parameters of requests that set none: the operator's, else the model's own."""
        names = attrs.fields_dict(GenerationDefaults)
        values = {name: self.generation[name] for name in names if name in self.generation}
        given = {each.name: each.value for each in self.settings if each.name in names}
        return values | {name: value for name, value in given.items() if value is not None}


def model_listing(known: ModelDescription, state: ModelState | None = None) -> dict[str, Any]:
    """Return a JSON object with the facts about a model; a fact that is not known is null.

    Args:
        state: State in the server that lists it; None without a server.
    """
    record = known.record
    summary = None if record is None else capability_summary(record)
    return {
        "type": None if record is None else record.model_type,
        "family": None if record is None else record.family,
        "architecture": None if record is None else record.architecture,
        "base_model": (known.model or None) if known.model != known.id else None,
        "adapter": known.is_adapter,
        "size_bytes": known.nbytes,
        "parameters": known.parameters,
        "quantization": known.quantization or None,
        "context_length": None if summary is None else summary.get("context_length"),
        "capabilities": summary,
        "tools": known.takes_tools,
        "thinking": known.thinks,
        "thinking_switch": known.switches_thinking,
        "probed": record is not None and record.probed is not None,
        "state": None if state is None else state.value,
        "status": None if state is None else DOCUMENTED_NAMES[state],
        "required_bytes": None if known.need is None else known.need.total,
        "least_bytes": None if known.need is None else known.need.least,
        "fits": known.fits,
        "tool_parser": known.parsers[0],
        "thinking_parser": known.parsers[1],
        "generation": known.generation_defaults,
        "settings": {
            each.name: {"value": _plain(each.value), "origin": each.origin} for each in known.settings
        },
        "problem": None if known.problem is None else known.problem.detail,
    }


def _plain(value: Any) -> Any:
    """Return a value that JSON can express, which has no infinity."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


@attrs.frozen
class MemoryNeed:
    """The memory that a model needs in an otherwise empty server, in bytes.

    Args:
        total: Bytes that its load needs, with those that are only estimated.
        least: Part of these that is certain; no model is refused for an estimate alone.
        granted: Bytes that the pool grants it.
        limit: Bytes that all models may have together; None for no limit.
        alone: True if it exceeds the limit, but not what the device can give: no other model stays beside it.
    """

    total: int
    least: int
    granted: int
    limit: int | None = None
    alone: bool = False

    @property
    def estimated(self) -> int:
        """Granted bytes that are only estimated."""
        return max(0, self.granted - self.least)

    @property
    def fits(self) -> bool:
        """True if an empty server has the memory."""
        return self.limit is None or self.granted <= self.limit


def memory_need(kind: ModelType, total: int, least: int, limit: int | None, most: int | None) -> MemoryNeed:
    """Return the need of a model of some kind.

    A text model that exceeds the default limit, but not what the device can give, gets all of that limit: it
    is loaded alone. A model with vision is not, since its images need memory that nobody can foresee.
    Source: document 002 of the specification, "Memory-Aware Loading".

    Args:
        most: Bytes that a model may have while it is alone; None for no more than the limit.
    """
    if limit is not None and least <= limit < total:
        return MemoryNeed(total, least, limit, limit)
    if kind != "text" or limit is None or most is None or not limit < total <= most:
        return MemoryNeed(total, least, total, limit)
    return MemoryNeed(total, least, limit, limit, alone=True)


@attrs.frozen
class Download:
    """The missing files of a model, before their download.

    Args:
        nbytes: Size of all files, in bytes.
        folder: Folder of the hub's cache that will hold them.
    """

    model: str
    files: int
    nbytes: int
    source: str
    folder: str


@attrs.frozen
class MachineReport:
    """The device on which models would compute, and the folder of downloaded ones.

    Args:
        device: Kind and name of the device, as MLX tells them.
        memory: Bytes that it can give to a process; 0 if unknown.
        limit: Bytes that models may have together, as far as no setting says otherwise; 0 if unknown.
        problem: Reason why nothing can be computed; None if a small computation was right.
        hub_cache: Path of the folder, which may not exist yet.
    """

    device: str = ""
    memory: int = 0
    limit: int = 0
    problem: str | None = None
    hub_cache: str = ""

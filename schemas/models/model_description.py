"""Descriptions of models that need no loading."""

from __future__ import annotations

from typing import Any

import attrs

from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.models.capabilities import CapabilityRecord
from greenroom.schemas.models.memory_need import MemoryNeed
from greenroom.schemas.problems import Problem
from greenroom.schemas.settings.generation_defaults import GenerationDefaults
from greenroom.schemas.settings.origins import SettingInForce


@attrs.frozen
class ModelDescription:
    """The description of an available model. Fields that its files do not reveal are empty.

    Args:
        created: Unix time in seconds.
        nbytes: Size of its files in bytes.
        record: Capabilities; None if its files are missing or unusable.
        problem: The reason why the files are unusable.
        parameters: Number of weights.
        quantization: Bits per weight (`4-bit`), or the weights' type.
        template: Source of the chat template.
        describes_tools: True if the template has a place for tools.
        supports_reasoning: True if the template supports reasoning.
        fills_gaps: True if the vocabulary has fill-in-the-middle tokens.
        generation: Contents of its `generation_config.json`.
        folder: Path of the folder with its files.
        notices: Warnings for the operator, as sentences.
        model: The model's own id, if `id` is an alias or a profile.
        owned_by: Owner, as reported to clients.
        need: Memory that a load needs; None if the files do not tell.
        fits: True if an empty server admits it; None if unknown.
        refused: Reason why none of its loads will succeed, although its kind is known; None if there is none.
        parsers: Ids of the parsers of tool calls and of reasoning; None lets the template decide.
        settings: Settings that can be the model's own, as they hold for it.
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

"""Models in Anthropic's form, with all its feature flags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from greenroom.http.anthropic.messages_request import ANTHROPIC_EFFORTS
from greenroom.http.encoding.encoding import timestamp
from greenroom.schemas.models.capabilities import CapabilityRecord
from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.models.model_description import ModelDescription
from greenroom.schemas.problems import invalid
from greenroom.schemas.wire.anthropic import ModelBody, ModelPage

_THINKING_TYPES = ("adaptive", "between_tools", "disabled", "enabled")


def chats(record: CapabilityRecord) -> bool:
    return record.model_type in ("text", "vision")


def model_capabilities(
    record: CapabilityRecord, *, supports_reasoning: bool, always_reasons: bool = False
) -> dict[str, Any]:
    """Return the features of a model. `supports_reasoning`: True if its chat template supports reasoning;
    `always_reasons`: True if its reasoning is known not to be switched off.
    """
    asked = chats(record)
    takes_images = asked and "image" in record.inputs
    thoughts = asked and supports_reasoning
    return {
        "batch": _support(False),
        "citations": _support(False),
        "code_execution": _support(False),
        "context_management": {
            **_support(asked),
            "clear_thinking_20251015": _support(asked),
            "clear_tool_uses_20250919": _support(False),
            "compact_20260112": _support(False),
        },
        "effort": {**_support(thoughts), **{effort: _support(thoughts) for effort in ANTHROPIC_EFFORTS}},
        "image_input": _support(takes_images),
        "pdf_input": _support(takes_images),
        "server_tools": {**_support(False), "code_execution": _support(False), "web_search": _support(False)},
        "structured_outputs": _support(asked),
        # Every chat model accepts every type; one without reasoning ignores it.
        "thinking": {
            **_support(thoughts),
            "types": {
                name: _support(asked and not (always_reasons and name == "disabled"))
                for name in _THINKING_TYPES
            },
        },
    }


def _support(supported: bool) -> dict[str, bool]:
    return {"supported": supported}


DEFAULT_LIMIT, MAX_LIMIT = 20, 1_000


class AnthropicModelFormatter:
    def listed(
        self, models: Sequence[ModelDescription], states: Mapping[str, ModelState], query: Mapping[str, str]
    ) -> dict[str, Any]:
        """Return a page of models. `query`: parameters `limit`, and `after_id` or `before_id` with the id of
        the model next to the page. Raises ProblemError: 400 that names the wrong parameter.
        """
        limit = _limit(query.get("limit", str(DEFAULT_LIMIT)))
        wanted = "active" in query.get("lifecycle", "active").split(",")
        models = models if wanted else ()
        ids = [model.id for model in models]
        if "before_id" in query:
            end = _position(ids, query, "before_id")
            page, has_more = models[max(0, end - limit) : end], end > limit
        else:
            begin = _position(ids, query, "after_id") + 1 if "after_id" in query else 0
            page, has_more = models[begin : begin + limit], begin + limit < len(models)
        first, last = (page[0].id, page[-1].id) if page else (None, None)
        return attrs.asdict(ModelPage(tuple(map(_model, page)), has_more, first, last))

    def one(self, model: ModelDescription, states: Mapping[str, ModelState]) -> dict[str, Any]:
        return attrs.asdict(_model(model))


def _model(card: ModelDescription) -> ModelBody:
    known = ModelBody(card.id, card.id, timestamp(card.created))
    if (record := card.record) is None:
        return known
    always = card.switches_thinking is False
    capabilities = model_capabilities(record, supports_reasoning=bool(card.thinks), always_reasons=always)
    if not chats(record):
        return attrs.evolve(known, capabilities=capabilities)
    context = record.context
    return attrs.evolve(known, capabilities=capabilities, max_input_tokens=context, max_tokens=context)


def _limit(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 5 and 1 <= int(text) <= MAX_LIMIT):
        raise invalid(f"`limit` is {text[:20]!r}, but must be an integer from 1 to {MAX_LIMIT}.", "limit")
    return int(text)


def _position(ids: Sequence[str], query: Mapping[str, str], name: str) -> int:
    try:
        return ids.index(query[name])
    except ValueError:
        raise invalid(f"`{name}` is {query[name][:80]!r}, which is not the id of a model.", name) from None

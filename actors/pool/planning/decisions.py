"""The pool's decisions, as data: what to load, to unload and to refuse."""

from __future__ import annotations

from enum import Enum

import attrs

from greenroom.schemas.model_key import ModelKey


class Reason(Enum):
    """The reason to refuse a model's requests."""

    TOO_LARGE = "too large"
    """It does not fit into memory beside pinned models, or at all."""
    HUNG = "hung"
    """Models that hang hold the memory."""
    OTHERS = "others"
    """Other programs use the memory."""


@attrs.frozen
class Refusal:
    """A refusal of all requests that wait for a model.

    Args:
        required: Bytes that it needs.
        available: Bytes that it could have.
        freed: Bytes of models that were unloaded for it.
    """

    key: ModelKey
    reason: Reason
    required: int = 0
    available: int = 0
    freed: int = 0


@attrs.frozen
class Plan:
    """The policy's decisions.

    Args:
        open: Models whose files are read, since their sizes are unknown.
        load: Models to load.
        wait: Models that must wait for memory, longest wait first.
        unload: Models to unload for others: without leases, or suspendable.
        beneficiaries: For each model in `unload`, in the same order, the waiting model that needs its memory;
            None if the unloaded model's own load is given up.
        expired: Models to unload because their time to live is over, or an operator has asked for it.
        paused: Models that admit no new requests while listed.
        short: Models that wait for memory which no model of the pool can free.
        trim: Loaded models that release their caches, before such a wait ends in a refusal.
        trimmed_for: Model for which `trim` releases caches.
        held_for: Model that needs the held memory, which is released; None if none does.
        refused: Models whose requests fail.
    """

    open: tuple[ModelKey, ...] = ()
    load: tuple[ModelKey, ...] = ()
    wait: tuple[ModelKey, ...] = ()
    unload: tuple[ModelKey, ...] = ()
    beneficiaries: tuple[ModelKey | None, ...] = ()
    expired: tuple[ModelKey, ...] = ()
    paused: frozenset[ModelKey] = frozenset()
    short: frozenset[ModelKey] = frozenset()
    trim: tuple[ModelKey, ...] = ()
    trimmed_for: ModelKey | None = None
    held_for: ModelKey | None = None
    refused: tuple[Refusal, ...] = ()

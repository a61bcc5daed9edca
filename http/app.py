"""The Quart-Trio application: which function answers which path."""

from __future__ import annotations

from quart_trio import QuartTrio

from greenroom.actors.ref import Ref
from greenroom.schemas.model_protocol import PoolMessage
from greenroom.schemas.settings import Settings


def create_app(pool: Ref[PoolMessage], settings: Settings) -> QuartTrio:
    """An application that turns HTTP requests into messages to the pool."""
    return QuartTrio(__name__)

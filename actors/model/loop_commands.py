"""The commands to a model's GPU worker, which it executes between two steps."""

from __future__ import annotations

import attrs

from greenroom.actors.engines.engine_protocol import SuspendedRequest
from greenroom.schemas.messages.prepared_input import PreparedInput
from greenroom.schemas.messages.requests import InferenceRequest


@attrs.frozen
class Submit:
    """The command to start a request."""

    request: InferenceRequest
    prepared: PreparedInput

    @property
    def request_id(self) -> str:
        return self.request.id


@attrs.frozen
class Resume:
    """The command to resume a request that the model's previous engine has suspended."""

    request_id: str
    suspended: SuspendedRequest


@attrs.frozen
class Cancel:
    """The command to cancel a request at the next step."""

    request_id: str


@attrs.frozen
class Suspend:
    """The command to unload once all requests can be suspended; at once if the engine cannot suspend any."""


@attrs.frozen
class Close:
    """The command to unload at once, dropping all requests."""


@attrs.frozen
class ReleaseMemory:
    """The command to release memory that another model has requested."""


@attrs.frozen
class ReleaseCaches:
    """The command to release all cached data, of this model and of MLX."""


Command = Submit | Resume | Cancel | ReleaseMemory | ReleaseCaches | Suspend | Close

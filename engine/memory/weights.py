"""What a model's weights take, charged to the account before they are read."""

from __future__ import annotations

from greenroom.engine.memory.account import MemoryAccount, Share
from greenroom.engine.memory.device_memory import default_memory
from greenroom.schemas.problems import ProblemError, insufficient_memory


def charge_weights(account: MemoryAccount, share: Share, model: str, nbytes: int) -> None:
    """Charge further weights of a model, such as those of one that drafts for it, before they are read.

    Raises:
        ProblemError: 507.
    """
    account.set_default_limit(default_memory())
    before = share.weights
    room = share.charge_weights(before + nbytes)
    if room is not None:
        raise ProblemError(insufficient_memory(model, nbytes, room - before))

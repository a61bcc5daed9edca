"""The prefixes that unloaded models have left in main memory."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from greenroom.engine.memory.account import MemoryAccount


class HeldPrefixes:
    """The held memory of a system's account.

    Attributes:
        account: Account of the system; None before the first load.
    """

    def __init__(self) -> None:
        self.account: MemoryAccount | None = None
        self._folders: dict[str, Path] = {}

    def begin(self, model: str, folder: Path, account: MemoryAccount) -> None:
        """Record a model's folder, by which it owns its prefixes, when a load begins."""
        self.drop_deleted()
        self.account, self._folders[model] = account, folder

    def drop_deleted(self) -> None:
        """Drop the held prefixes of models whose folders were deleted; checks the folders of all loads so
        far."""
        for model, folder in list(self._folders.items()):
            if not folder.is_dir():
                self.drop(model)

    def nbytes(self) -> int:
        """Return the bytes held for all models, without waiting."""
        return 0 if self.account is None else self.account.held.nbytes

    def drop(self, model: str) -> int:
        """Drop a model's held prefixes, and hold none at its next unload; return the bytes without waiting.

        Args:
            model: The model's own id.
        """
        folder, account = self._folders.get(model), self.account
        if account is None or folder is None:
            return 0
        dropped = account.held.refuse(str(folder))
        nbytes = sum(piece.nbytes for piece in dropped)
        if nbytes:  # the system takes 30 ms per GB
            threading.Thread(target=dropped.clear, name="prefixes dropped", daemon=True).start()
        return nbytes

    def release(self) -> int:
        """Drop everything; return the bytes once they are free."""
        return 0 if self.account is None else self.account.held.drop_all()

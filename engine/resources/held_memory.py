"""Host memory that only saves work, such as the prefixes of unloaded models; it is freed first."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import attrs


@attrs.frozen(eq=False)
class HeldPiece:
    """A piece of data outside MLX, which any thread may drop. `nbytes`: size in bytes."""

    content: Any
    nbytes: int


class HeldMemory:
    """Pieces of data by owner and name, dropped oldest first. Thread-safe.

    An owner is a loaded model that takes pieces back, or an unloaded one that has left some.

    Args:
        lock: Lock of the account, which may already be held.
        excess: Function that returns the bytes by which the account's charges, with the held ones, exceed its
            limit.
    """

    def __init__(self, lock: threading.Condition, excess: Callable[[], int]) -> None:
        self.nbytes = 0
        self._lock = lock
        self._excess = excess
        self._pieces: dict[tuple[str, str], HeldPiece] = {}
        self._stamps: dict[str, str] = {}
        self._refused: set[str] = set()

    def claim(self, owner: str, stamp: str) -> list[Any]:
        """Return the contents that an owner has left; they are dropped if its stamp has changed. `stamp`:
        text that changes whenever earlier pieces are of no use any more.
        """
        dropped: list[HeldPiece] = []
        with self._lock:
            self._refused.discard(owner)
            if self._stamps.get(owner) != stamp:
                dropped = self._drop_of(owner)
            self._stamps[owner] = stamp
            found = [piece.content for (each, _), piece in self._pieces.items() if each == owner]
        dropped.clear()  # outside of the lock, since it takes time
        return found

    def accepts(self, owner: str) -> bool:
        return owner not in self._refused

    def hold(self, owner: str, name: str, piece: HeldPiece, stamp: str | None = None) -> None:
        """Hold a piece as the newest one, if the owner's pieces are wanted; older ones may be dropped.

        Args:
            stamp: Stamp of the claim before which the piece was made, since a later claim may have another
                one; None for any.
        """
        with self._lock:
            if owner in self._refused or (stamp is not None and self._stamps.get(owner) != stamp):
                return
            dropped = [self._pop((owner, name))]
            self._pieces[owner, name] = piece
            self.nbytes += piece.nbytes
            dropped += self.drop(self._excess())
        dropped.clear()

    def find(self, owner: str, name: str) -> Any:
        """Return the content of a piece, which stays held; None if there is none."""
        with self._lock:
            piece = self._pieces.get((owner, name))
        return None if piece is None else piece.content

    def take(self, owner: str, name: str) -> HeldPiece | None:
        """Return a piece, which is held no more; None if there is none."""
        with self._lock:
            return self._pop((owner, name))

    def drop(self, nbytes: int) -> list[HeldPiece]:
        """Drop the oldest pieces, at least `nbytes` bytes; return them, to be destroyed without the lock."""
        dropped: list[HeldPiece] = []
        with self._lock:
            while nbytes > 0 and self._pieces:
                piece = self._pieces.pop(next(iter(self._pieces)))
                self.nbytes -= piece.nbytes
                nbytes -= piece.nbytes
                dropped.append(piece)
        return dropped

    def limit(self, owner: str, nbytes: int) -> None:
        """Drop an owner's oldest pieces until it has at most `nbytes` bytes."""
        dropped = list[HeldPiece | None]()
        with self._lock:
            own = [(key, piece.nbytes) for key, piece in self._pieces.items() if key[0] == owner]
            beyond = sum(size for _, size in own) - nbytes
            for key, size in own:
                if beyond <= 0:
                    break
                dropped.append(self._pop(key))
                beyond -= size
        dropped.clear()

    def refuse(self, owner: str) -> list[HeldPiece]:
        """Drop an owner's pieces, and hold none before its next load; return them to be destroyed."""
        with self._lock:
            self._refused.add(owner)
            return self._drop_of(owner)

    def drop_all(self) -> int:
        """Drop everything, and return its bytes once they are free."""
        with self._lock:
            dropped = self.drop(self.nbytes)
        nbytes = sum(piece.nbytes for piece in dropped)
        dropped.clear()
        return nbytes

    def _drop_of(self, owner: str) -> list[HeldPiece]:
        popped = (self._pop(key) for key in [*self._pieces] if key[0] == owner)
        return [piece for piece in popped if piece is not None]

    def _pop(self, key: tuple[str, str]) -> HeldPiece | None:
        piece = self._pieces.pop(key, None)
        self.nbytes -= 0 if piece is None else piece.nbytes
        return piece

"""One model's charges to the memory account."""

from __future__ import annotations

from collections.abc import Callable


class Charges:
    """Memory charged to one model, as the account adds it up.

    Attributes:
        weights: Bytes of the model's weights.
        running: Bytes of the caches of prompts and answers, including copies in progress.
        cached: Bytes of the prefix cache.
        reservation: Bytes that other models leave free for a waiting prompt; 0 for none.
        reservation_order: Order of the reservation among all models; smaller numbers come first.
        eviction_request: Bytes that another model requests from the prefix cache.
        on_eviction_request: Callback for such a request, called on any thread; must not block.
        loading: True while the weights are loaded.
        changes: Number of changes to the charges so far.
    """

    def __init__(self) -> None:
        self.weights = self.running = self.cached = self.changes = 0
        self.loading = False
        self.reservation = self.reservation_order = self.eviction_request = 0
        self.on_eviction_request: Callable[[], None] | None = None

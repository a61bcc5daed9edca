"""Store messages for copies of models."""

from __future__ import annotations

import attrs

from greenroom.schemas.models.model_copy import ModelCopy


@attrs.frozen
class SaveCopy:
    """Store a copy, in place of an earlier one of its name. Reply: Committed."""

    copy: ModelCopy


@attrs.frozen
class DeleteCopy:
    """Delete a copy. Reply: Deleted, also if there is none."""

    name: str

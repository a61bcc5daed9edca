"""Load encoders of the architectures that only mlx-embeddings has.

That package is GPL-3.0, so nothing else may need it: it is the extra `embeddings`, imported here alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from greenroom.engine.loading.libraries import import_model_code


def load_extra_encoder(folder: Path) -> Any:
    """Return a model whose weights are named, but not read yet.

    Raises:
        ModuleNotFoundError: The package is not installed.
        Exception: Whatever it raises for files that it cannot use.
    """
    return import_model_code("mlx_embeddings.utils").load_model(folder, lazy=True)

"""Loading encoders of architectures that only mlx-embeddings supports.

That package is GPL-3.0, so nothing else may depend on it: it is the extra `embeddings`, imported only here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from greenroom.engine.loading.libraries import import_model_code


def load_extra_encoder(folder: Path) -> Any:
    """Return a model whose weights are not evaluated yet.

    Raises:
        ModuleNotFoundError: The package is not installed.
        Exception: Any error of the library for files that it cannot use.
    """
    return import_model_code("mlx_embeddings.utils").load_model(folder, lazy=True)

"""Fields of one vision architecture's tiny model, and reduction of sizes that its code fixes."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Mapping
from typing import Any

import attrs

VOCABULARY = "size of the vocabulary"
"""Value in a configuration that stands for the number of tokens."""


@attrs.frozen
class OwnFields:
    """Fields of an architecture's folder that its configuration classes do not provide.

    Args:
        mark_token: Image token named in config.json.
        mark: Text that the template writes for an image; by default `mark_token`.
        model_type: `model_type` in config.json; by default the package's name.
        root: Fields of config.json; `token:<text>` is replaced by a token's id.
        parts: Fields of its nested configurations.
        preprocessor: Fields of preprocessor_config.json.
        processor: Fields of processor_config.json.
        tokenizer: Fields of tokenizer_config.json.
        tokens: Special tokens not spelled out in the package's code.
        beginning: First token of the template, where the processor writes it before images too; or empty.
        cuts_last: True if mlx-vlm drops the last token of a prompt with images.
        scale: Scale of matrices; a larger one makes answers vary more.
        images: Largest number of images in a prompt.
        mend: What Greenroom mends in mlx-vlm's model, and the comparison mends there too; or empty.
        asks_library: False if only Greenroom is asked, since mlx-vlm cannot answer or would not end.
        writes_alone: False if it writes about images only, and fails without one.
        flat: True if the package reads the language model's fields from the top level of config.json.
        ids: Ids of tokens that the package's code fixes, by token.
        sizes: Sizes fixed in the package's code that the trial reduces, by `module:name`; see `reduce_sizes`.
    """

    mark_token: str = "<image>"
    mark: str = ""
    model_type: str = ""
    root: Mapping[str, Any] = {}
    parts: Mapping[str, Mapping[str, Any]] = {}
    preprocessor: Mapping[str, Any] = {}
    processor: Mapping[str, Any] = {}
    tokenizer: Mapping[str, Any] = {}
    tokens: tuple[str, ...] = ()
    beginning: str = ""
    cuts_last: bool = False
    scale: float = 3.0
    images: int = 2
    mend: str = ""
    asks_library: bool = True
    writes_alone: bool = True
    flat: bool = False
    ids: Mapping[str, int] = {}
    sizes: Mapping[str, Any] = {}


def reduce_sizes(module: str, sizes: Mapping[str, Any]) -> None:
    """Reduce sizes that a package of mlx-vlm fixes in its code, for the rest of the process.

    Args:
        module: Package name in mlx-vlm.
        sizes: New values by `file:name`. A mapping replaces defaults of a function's parameters or of a
            class's fields; behind `file:name()` it replaces the arguments of every call. Any other value
            replaces the constant or attribute.
    """
    for path, value in sizes.items():
        file, _, name = path.partition(":")
        *owners, last = name.removesuffix("()").split(".")
        owner: Any = importlib.import_module(f"mlx_vlm.models.{module}.{file}")
        for each in owners:
            owner = getattr(owner, each)
        if not isinstance(value, Mapping):
            setattr(owner, last, value)
            continue
        target = getattr(owner, last)
        if name.endswith("()"):
            setattr(owner, last, _with_arguments(target, value))
            continue
        function = vars(target)["__init__"] if isinstance(target, type) else target
        _set_defaults(function, value)


def _set_defaults(function: Any, values: Mapping[str, Any]) -> None:
    """Replace defaults of a function's parameters."""
    given = [
        each for each in inspect.signature(function).parameters.values() if each.default is not each.empty
    ]
    defaults = {each.name: values.get(each.name, each.default) for each in given}
    assert values.keys() <= defaults.keys(), f"{function} has no defaults of these names"
    named = {each.name for each in given if each.kind is each.KEYWORD_ONLY}
    function.__defaults__ = tuple(value for name, value in defaults.items() if name not in named) or None
    function.__kwdefaults__ = {name: value for name, value in defaults.items() if name in named} or None


def _with_arguments(function: Any, values: Mapping[str, Any]) -> Any:
    """Return a function that calls another with some of its named arguments replaced."""

    @functools.wraps(function)
    def call(*arguments: Any, **given: Any) -> Any:
        return function(*arguments, **{**given, **values})

    return call

"""`data:` URLs (RFC 2397), as far as files are sent in them."""

from __future__ import annotations

import attrs

from greenroom.schemas.problems import invalid

_LONGEST_HEAD = 256
"""Characters before the comma; a media type with its parameters has some forty."""


@attrs.frozen
class DataUrl:
    """What a `data:` URL holds.

    Args:
        media_type: In lower case, without parameters.
        base64: The file's bytes.
    """

    media_type: str
    base64: str = attrs.field(repr=False)


def is_data_url(text: str) -> bool:
    """Return whether a text is a `data:` URL, or begins as one."""
    return text[:5].lower() == "data:"


def parse_data_url(url: str, field: str) -> DataUrl:
    """Return the parts of a `data:` URL.

    Args:
        field: What the client calls it.

    Raises:
        ProblemError: 400 that names the field and what it must be.
    """
    end = url.find(",", 0, _LONGEST_HEAD)
    if end < 0:
        raise invalid(f"`{field}` is a data URL without a comma: {_EXPECTED}.", field)
    media_type, *parameters = (part.strip().lower() for part in url[len("data:") : end].split(";"))
    if not parameters or parameters[-1] != "base64":
        raise invalid(f"`{field}` is a data URL that is not marked as base64: {_EXPECTED}.", field)
    if not media_type:
        raise invalid(f"`{field}` is a data URL without a media type: {_EXPECTED}.", field)
    return DataUrl(media_type, url[end + 1 :])


_EXPECTED = "it must be `data:TYPE;base64,DATA`, such as `data:image/png;base64,iVBORw0…`"

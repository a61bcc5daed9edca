"""Parsing of `data:` URLs (RFC 2397) with files in base64."""

from __future__ import annotations

import attrs

from greenroom.schemas.problems import invalid

_LONGEST_HEAD = 256
"""Limit on the characters before the comma; a media type with parameters has some forty."""


@attrs.frozen
class DataUrl:
    """A parsed `data:` URL.

    Args:
        media_type: Media type in lower case, without parameters.
        base64: Content of the file in base64.
    """

    media_type: str
    base64: str = attrs.field(repr=False)


def is_data_url(text: str) -> bool:
    """Return whether text starts like a `data:` URL."""
    return text[:5].lower() == "data:"


def parse_data_url(url: str, field: str) -> DataUrl:
    """Parse a `data:` URL.

    Args:
        field: Name of the field in the request, for errors.

    Raises:
        ProblemError: 400 that names the field and the expected form.
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

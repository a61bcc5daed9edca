"""Settings of images and documents in requests."""

from __future__ import annotations

from typing import Literal, get_args

import attrs

from greenroom.schemas.settings.setting_fields import setting

Switch = Literal["off", "on"]
Fetching = Literal["off", "https", "http"]
ImageHistory = Literal["all", "last"]


@attrs.frozen(slots=False)
class Images:
    """Settings of images and documents in requests."""

    images_fetch: Fetching = setting(
        "off",
        "Fetch images and documents that requests name by address: by `https` only, or also by `http`. "
        "Private addresses are refused.",
        one_of=get_args(Fetching),
    )
    images_fetch_hosts: tuple[str, ...] = setting(
        (), "Hosts from which files are fetched even at a private address, and at any port."
    )
    images_greedy: bool = setting(
        True, "Use temperature 0 for requests with images, unless they or `temperature` set another."
    )
    images_ids: Switch = setting(
        "off",
        "Number the images of a conversation for the model, and append a table of the numbers to answers, so "
        "that they stay the same when clients drop the images.",
        one_of=get_args(Switch),
    )
    images_history: ImageHistory = setting(
        "all",
        "Images that the model sees: `all`, or `last`: those of the last user's message. If it has any, only "
        "system messages are kept before it.",
        one_of=get_args(ImageHistory),
    )
    images_max_count: int = setting(
        5,
        "Most images that a request shows to a model; the newest are kept.",
        low=1,
        high=1000,
    )
    images_max_pages: int = setting(
        20, "Most pages of documents that a request shows to a model.", low=1, high=1000
    )

"""Hostile images, documents, recordings and URLs: each gets a 4xx, and the next request is answered."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from greenroom.tests.support.hostile import addresses, documents, pictures, sounds, uploads
from greenroom.tests.support.servers.http_servers import RawResponse, Served
from greenroom.tests.support.servers.kind_servers import answer, asking
from greenroom.tests.support.spoiled.spoiled_kinds import (
    KindRequest,
    form_request,
    json_request,
    right_requests,
)

HEARING = "/v1/audio/transcriptions"


def chat(part: Mapping[str, Any]) -> KindRequest:
    messages = [{"role": "user", "content": [part, {"type": "text", "text": "What is this?"}]}]
    return json_request("/v1/chat/completions", {"model": "sees", "messages": messages, "max_tokens": 2})


def image(data: bytes) -> KindRequest:
    return image_url(f"data:image/png;base64,{base64.b64encode(data).decode()}")


def image_url(url: str) -> KindRequest:
    return chat({"type": "image_url", "image_url": {"url": url}})


def document(data: bytes) -> KindRequest:
    url = f"data:application/pdf;base64,{base64.b64encode(data).decode()}"
    return chat({"type": "file", "file": {"filename": "a.pdf", "file_data": url}})


def recording(data: bytes) -> KindRequest:
    return form_request(HEARING, {"model": "hears"}, data)


def assert_clear_refusal(got: RawResponse, name: str, param: str) -> None:
    said = f"{name:.200}: {got.status} {got.body[:500]!r}"
    assert got.status in (400, 413, 415, 422), said
    error = got.json()["error"]
    assert len(error["message"]) > 10, said
    assert error["param"].startswith(param), said


async def assert_still_answers(served: Served, kind: str) -> None:
    got = await answer(served, right_requests(kind)[0])
    assert got.status == 200, got.body


@pytest.mark.deep
async def test_hostile_images_are_refused_by_name(tmp_path: Path) -> None:
    async with asking("sees", tmp_path) as served:
        await assert_still_answers(served, "sees")
        for name, make in pictures.REFUSED.items():
            assert_clear_refusal(await answer(served, image(make())), name, "messages")
        for url in (*pictures.WRONG_DATA_URLS, *addresses.all_refused()):
            assert_clear_refusal(await answer(served, image_url(url)), url, "messages")
        for name, make in documents.REFUSED.items():
            assert_clear_refusal(await answer(served, document(make())), name, "messages")
        await assert_still_answers(served, "sees")


@pytest.mark.soak
async def test_odd_images_and_documents_are_read_or_refused(tmp_path: Path) -> None:
    async with asking("sees", tmp_path) as served:
        for name, make in pictures.ODD.items():
            got = await answer(served, image(make()))
            assert got.status in (200, 400), (name, got.body[:500])
        for name, make in documents.ODD.items():
            got = await answer(served, document(make()))
            assert got.status in (200, 400), (name, got.body[:500])
        await assert_still_answers(served, "sees")


@pytest.mark.deep
async def test_hostile_recordings_are_refused_by_name(tmp_path: Path) -> None:
    async with asking("hears", tmp_path) as served:
        await assert_still_answers(served, "hears")
        for name, make in sounds.REFUSED.items():
            assert_clear_refusal(await answer(served, recording(make())), name, "file")
        with addresses.trap() as trap:
            for name, data in sounds.naming(f"{trap.address}/a.mp3").items():
                assert_clear_refusal(await answer(served, recording(data)), name, "file")
            assert trap.asked == []
        for name, (media_type, body) in uploads.BROKEN_FORMS.items():
            got = await answer(served, KindRequest(HEARING, media_type, body))
            assert got.status in (400, 413, 415), (name, got.body[:500])
        await assert_still_answers(served, "hears")


@pytest.mark.soak
async def test_odd_recordings_are_heard_or_refused_and_never_nan(tmp_path: Path) -> None:
    async with asking("hears", tmp_path) as served:
        for name, make in sounds.ODD.items():
            got = await answer(served, recording(make()))
            assert got.status in (200, 400), (name, got.body[:500])
            assert b"NaN" not in got.body, name
        for name in uploads.NAMES:
            form = uploads.form(sounds.tone(0.1), name, model="hears")
            got = await answer(served, KindRequest(HEARING, form.headers["content-type"], form.whole()))
            assert got.status in (200, 400), (name, got.body[:500])
        await assert_still_answers(served, "hears")

"""Pages of PDFs as images: bounded in number, size and time, whatever the file holds."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from greenroom.engine.images.limits import ImageLimits
from greenroom.engine.images.pdf_pages import PAGE_PIXELS, draw_pages
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.tests.support.hostile import documents

PARAM = "messages[0].content[0].file"


def refused(data: bytes, limits: ImageLimits = ImageLimits()) -> Problem:  # noqa: B008
    with pytest.raises(ProblemError) as caught:
        draw_pages(data, limits, param=PARAM)
    return caught.value.problem


def test_pages_are_drawn_in_order_at_a_size_that_can_be_read() -> None:
    pages = draw_pages(documents.document(3, box="0 0 595 842"))
    assert [page.size for page in pages] == [(1240, 1755)] * 3
    assert pages[0].getpixel((100, 1600)) == (0, 0, 255)
    assert pages[0].getpixel((1000, 100)) == (255, 255, 255)


@pytest.mark.parametrize("make", documents.REFUSED.values(), ids=documents.REFUSED)
def test_hostile_documents_are_refused_by_name(make: Callable[[], bytes]) -> None:
    problem = refused(make())
    assert (problem.status, problem.param) == (400, PARAM)
    assert f"`{PARAM}`" in problem.detail


@pytest.mark.parametrize(
    "name", [name for name in documents.ODD if "operations" not in name and "1 GB" not in name]
)
def test_odd_documents_are_drawn_or_refused_within_their_size(name: str) -> None:
    with suppress(ProblemError):
        pages = draw_pages(documents.ODD[name](), param=PARAM)
        assert all(page.width * page.height <= 2 * PAGE_PIXELS for page in pages)


def test_a_page_that_takes_too_long_is_given_up() -> None:
    with pytest.raises(ProblemError, match="takes too long"):
        draw_pages(documents.slow_page(), seconds=0.5)


def test_an_encrypted_document_says_so() -> None:
    assert "encrypted" in refused(documents.encrypted()).detail


def test_the_number_of_pages_is_limited() -> None:
    detail = refused(documents.document(3), ImageLimits(pages=2)).detail
    assert "3 pages" in detail
    assert "2" in detail

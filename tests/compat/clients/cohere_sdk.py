"""Cohere's official client."""

import os

import cohere
import pytest

URL = os.environ["GREENROOM_URL"]
DOCUMENTS = ["the man walks", "a long story about the weather and the garden", "no"]
ASKED = {"model": "bert-rerank", "query": "who walks", "documents": DOCUMENTS}


@pytest.fixture(params=["v1", "v2"])
def client(request):
    kind = cohere.Client if request.param == "v1" else cohere.ClientV2
    return kind(api_key="none", base_url=URL)


def test_documents_are_ranked(client):
    answer = client.rerank(**ASKED)
    assert answer.id
    assert sorted(result.index for result in answer.results) == [0, 1, 2]
    scores = [result.relevance_score for result in answer.results]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)
    assert answer.meta.api_version.version == ("1" if type(client) is cohere.Client else "2")
    assert answer.meta.tokens.input_tokens > 0


def test_only_the_best_come_back(client):
    assert len(client.rerank(**ASKED, top_n=2).results) == 2


def test_documents_come_back_if_they_are_wanted():
    client = cohere.Client(api_key="none", base_url=URL)
    objects = [{"text": text, "title": "t"} for text in DOCUMENTS]
    answer = client.rerank(
        **{**ASKED, "documents": objects}, return_documents=True, rank_fields=["title", "text"]
    )
    assert [result.document.text for result in answer.results] == [
        DOCUMENTS[result.index] for result in answer.results
    ]


def test_long_documents_are_cut():
    client = cohere.ClientV2(api_key="none", base_url=URL)
    whole, cut = (
        client.rerank(**ASKED, max_tokens_per_doc=most).meta.tokens.input_tokens for most in (4_096, 2)
    )
    assert cut < whole


def test_errors_have_its_classes(client):
    with pytest.raises(cohere.NotFoundError) as missing:
        client.rerank(**{**ASKED, "model": "nobody"})
    assert "nobody" in missing.value.body["message"]
    with pytest.raises(cohere.BadRequestError) as wrong:
        client.rerank(**{**ASKED, "model": "greenroom-demo"})
    assert "does not take documents to rank" in wrong.value.body["message"]
    with pytest.raises(cohere.BadRequestError, match="documents"):
        client.rerank(**{**ASKED, "documents": []})

"""Schemathesis: every route with requests made from /openapi.json, whose statuses and shapes bind it.

The hub is a small one on this machine, with the models `org/chat` and `org/slow`: the transfer of the
second stands still.
"""

import json
import os
from concurrent.futures import ThreadPoolExecutor

import requests
import schemathesis
from hypothesis import HealthCheck, settings
from openapi_spec_validator import validate
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

URL = os.environ["GREENROOM_URL"]
ENDLESS = ("/admin/events", "/admin/logs", "/admin/audit")
CHECKS = [status_code_conformance, content_type_conformance, response_schema_conformance]

schema = schemathesis.openapi.from_url(f"{URL}/openapi.json")


def test_the_document_is_valid():
    validate(requests.get(f"{URL}/openapi.json", timeout=60).json())


@schema.exclude(path=[*ENDLESS]).parametrize()
@settings(
    max_examples=int(os.environ.get("EXAMPLES", "12")), deadline=None, suppress_health_check=list(HealthCheck)
)
def test_no_route_answers_500_or_what_it_does_not_tell(case):
    check(case, case.call(timeout=120))


def check(case, response):
    assert response.status_code != 500, response.text
    case.validate_response(response, checks=CHECKS)


def call(method, path, status=200, **parts):
    """Return the answer to a request of one's own, which must be as the document tells."""
    case = schema[path][method].Case(**parts)
    response = case.call(timeout=120)
    check(case, response)
    assert response.status_code == status, response.text
    return response


def post(path, status=200, **body):
    return call("POST", path, status, body=body, media_type="application/json")


def test_a_model_is_found_pulled_and_deleted():
    found = call("GET", "/admin/search", query={"q": "chat"}).json()["models"]
    assert [each["id"] for each in found] == ["org/chat"]
    assert '"completed"' in post("/admin/pull", model="org/chat", probe=False).text
    assert '"success"' in post("/api/pull", model="org/chat").text
    assert post("/api/pull", model="org/chat", stream=False).json() == {"status": "success"}
    assert "has no model of that name" in post("/admin/pull", model="org/nothing").text
    post("/api/pull", 404, model="org/nothing", stream=False)
    assert post("/admin/models/delete", model="org/chat").json()["freed_bytes"] > 0
    post("/admin/models/delete", 404, model="org/chat")


def test_a_pull_is_cancelled():
    with ThreadPoolExecutor(1) as threads:
        pulling = threads.submit(post, "/admin/pull", model="org/slow", probe=False)
        while not (pulls := running_pulls()):
            pass
        [pull] = pulls
        post("/admin/models/delete", 409, model="org/slow")
        path = "/admin/pull/{ident}/cancel"
        assert call("POST", path, path_parameters={"ident": pull["id"]}).json()["state"] == "cancelled"
        call("POST", path, 409, path_parameters={"ident": pull["id"]})
        call("POST", path, 404, path_parameters={"ident": "nothing"})
        last = json.loads(pulling.result(120).text.strip().rpartition("data: ")[2])
        assert last["state"] == "cancelled"


def running_pulls():
    listed = call("GET", "/admin/pulls").json()["pulls"]
    return [each for each in listed if each["model"] == "org/slow" and each["state"] == "running"]


def test_the_audit_is_listed_unless_it_is_followed():
    assert call("GET", "/admin/audit", query={"limit": 2}).json()
    call("GET", "/admin/audit", 400, query={"limit": "many"})

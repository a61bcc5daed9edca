"""Schemathesis: every route with requests made from /openapi.json, whose statuses and shapes bind it."""

import os

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
ENDLESS = ("/admin/events", "/admin/logs")
BEYOND_THIS_SERVER = ("/admin/pull", "/admin/search", "/admin/models/delete", "/api/pull", "/api/delete")
"""Routes that reach the hub or delete files of the machine."""

schema = schemathesis.openapi.from_url(f"{URL}/openapi.json").exclude(path=[*ENDLESS, *BEYOND_THIS_SERVER])


def test_the_document_is_valid():
    validate(requests.get(f"{URL}/openapi.json", timeout=60).json())


@schema.parametrize()
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_route_answers_500_or_what_it_does_not_tell(case):
    response = case.call(timeout=120)
    assert response.status_code != 500, response.text
    case.validate_response(
        response, checks=[status_code_conformance, content_type_conformance, response_schema_conformance]
    )

"""Documented routes and commands agree with those of the application."""

from __future__ import annotations

import re
from pathlib import Path

from greenroom.actors.actor_refs import ActorRefs
from greenroom.actors.core.ref import Inbox
from greenroom.http.answering.requests.route_services import RouteServices
from greenroom.http.app import create_app_with, web_sockets
from greenroom.http.command_line import COMMANDS
from greenroom.schemas.protocols.pool_protocol import PoolMessage
from greenroom.schemas.protocols.responses_protocol import ResponsesMessage
from greenroom.schemas.protocols.store_protocol import StoreMessage
from greenroom.schemas.settings.settings import Settings

NOTES = Path(__file__).parents[2] / "notes"
BELOW = " and below"


def documented(page: str) -> set[tuple[str, str]]:
    """Return the methods and paths in the first column of a page's tables."""
    cells = re.findall(r"^\| (`(?:GET|POST) .+?) \|", (NOTES / page).read_text(), re.MULTILINE)
    routes = {tuple(route) for cell in cells for route in re.findall(r"`(GET|POST) (/\S*)`", cell)}
    for cell in cells:
        if cell.endswith(BELOW):
            routes |= {
                (method, f"{path}/{{id}}") for method, path in re.findall(r"`(GET|POST) (/\S*)`", cell)
            }
    return {(method, path) for method, path in routes}


async def test_the_guide_lists_every_route() -> None:
    refs = ActorRefs(Inbox[PoolMessage]().ref, Inbox[StoreMessage]().ref, Inbox[ResponsesMessage]().ref)
    services = RouteServices(refs, Settings())
    app = create_app_with(services)
    served = {
        (method, re.sub(r"<[^>]+>", "{id}", rule.rule))
        for rule in app.url_map.iter_rules()
        for method in (rule.methods or set()) & {"GET", "POST"}
    }
    served |= {("GET", path) for path in web_sockets(app, services)}
    assert documented("guide.md") == served
    assert documented("messages.md") <= served


def test_the_guide_names_every_command() -> None:
    assert set(re.findall(r"`(?:\S+/)?greenroom (\w+)`", (NOTES / "guide.md").read_text())) == COMMANDS.keys()

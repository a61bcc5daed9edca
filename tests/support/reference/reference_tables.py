"""The tables of settings, parameters, routes and metrics in notes/, and the page of the library's names.

`make reference` rewrites them.

A row of routes keeps the meaning that the guide gives it. A new route gets a row of its own, with the first
line of its handler's or module's docstring.
"""

from __future__ import annotations

import inspect
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from textwrap import dedent
from typing import Any, get_args

import attrs

from greenroom import api
from greenroom.actors.actor_refs import ActorRefs
from greenroom.actors.core.ref import Inbox
from greenroom.actors.store.tables import StoreMessage
from greenroom.http.answering.route_services import RouteServices
from greenroom.http.app import create_app_with, web_sockets
from greenroom.http.commands.setup import SUGGESTED
from greenroom.http.operations.metrics import COUNTERS, GAUGES, HISTOGRAMS
from greenroom.http.settings.check_value import FIELDS
from greenroom.schemas.messages.generation import GenerationParameters, allowed
from greenroom.schemas.protocols.download_protocol import DownloadMessage
from greenroom.schemas.protocols.pool_protocol import PoolMessage
from greenroom.schemas.protocols.responses_protocol import ResponsesMessage
from greenroom.schemas.protocols.tools_protocol import ToolsMessage
from greenroom.schemas.settings.setting_groups import range_of
from greenroom.schemas.settings.settings import ModelSettings, Settings

NOTES = Path(__file__).resolve().parents[3] / "notes"
PAGES = ("api.md", "configure.md", "generation-parameters.md", "guide.md", "operate.md", "which-model.md")

SETTINGS_HEAD = "## Settings\n\n"
MODEL_HEAD = "## Settings of a model\n\n"
PARAMETERS_HEAD = "## Parameters\n\n"
METRICS_HEAD = "| metric | meaning |\n|---|---|\n"
MODELS_HEAD = "| memory | for all | model | weights | architecture |\n|---|---|---|---|---|\n"
NAMES_HEAD = "## Names\n\n"
ROUTES_HEAD = "| routes | what they do |\n|---|---|\n"

_METHODS = ("GET", "POST", "DELETE", "WEBSOCKET")


def rewritten(text: str) -> str:
    """Return a page's text with every reference table in it made anew."""
    settings, parameters = FIELDS.values(), attrs.fields(GenerationParameters)
    text = _with_rows(text, SETTINGS_HEAD, (_setting_line(field) for field in settings))
    text = _with_rows(text, MODEL_HEAD, _model_lines())
    text = _with_rows(text, PARAMETERS_HEAD, (_parameter_line(field) for field in parameters))
    text = _with_table(text, METRICS_HEAD, _metric_cells())
    text = _with_table(text, MODELS_HEAD, _model_cells())
    if NAMES_HEAD in text:
        text = text.partition(NAMES_HEAD)[0] + NAMES_HEAD + "\n".join(_names())
    return _with_table(text, ROUTES_HEAD, _route_cells(text))


def documented_routes(text: str) -> dict[str, set[str]]:
    """Return the methods of each path in the first column of a page's tables."""
    methods: dict[str, set[str]] = defaultdict(set)
    for cell in re.findall(r"^\| (`[A-Z ]+ /.+?) \|", text, re.MULTILINE):
        for written, path in re.findall(r"`([A-Z ]+) (/\S*)`", cell):
            methods[path] |= {*written.split()}
    return dict(methods)


def served_routes() -> Mapping[str, set[str]]:
    """Return the methods of each path that the application serves."""
    return {path: methods for path, (methods, _) in _served().items()}


def _served() -> dict[str, tuple[set[str], str]]:
    """Return the methods of each path, and a description of its handler."""
    refs = ActorRefs(
        Inbox[PoolMessage]().ref,
        Inbox[StoreMessage]().ref,
        Inbox[ResponsesMessage]().ref,
        Inbox[DownloadMessage]().ref,
        Inbox[ToolsMessage]().ref,
    )
    services = RouteServices(refs, Settings())
    app = create_app_with(services)
    found: dict[str, tuple[set[str], str]] = {}
    for rule in app.url_map.iter_rules():
        described = _description(app.view_functions[rule.endpoint])
        methods, _ = found.setdefault(re.sub(r"<[^>]+>", "{id}", rule.rule), (set(), described))
        methods |= (rule.methods or set()) & {*_METHODS}
    for path, sockets in web_sockets(app, services).items():
        found.setdefault(path, (set(), _description(type(sockets))))[0].add("WEBSOCKET")
    return found


def _description(handler: Any) -> str:
    handler = inspect.unwrap(getattr(handler, "func", handler))
    module = inspect.getmodule(handler)
    return (inspect.getdoc(handler) or (module and inspect.getdoc(module)) or "").partition("\n")[0]


def _route_cells(text: str) -> Iterable[tuple[str, str]]:
    served = _served()
    table = text.partition(ROUTES_HEAD)[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (`.+?`) \| (.*?) \|$", table, re.MULTILINE)
    for cell, meaning in rows:
        paths = [path for path in re.findall(r"`[A-Z ]+ (/\S*)`", cell) if path in served]
        if paths:
            yield ", ".join(_route(path, served.pop(path)[0]) for path in paths), meaning
    for path, (methods, described) in served.items():
        yield _route(path, methods), described


def _metric_cells() -> Iterable[tuple[str, str]]:
    rows = [(row.name, row.meaning, row.label) for row in GAUGES]
    rows += [(f"{row.name}_total", row.meaning, row.label) for row in COUNTERS]
    rows += [(name, f"{meaning} Histogram of seconds.", None) for name, meaning, _ in HISTOGRAMS]
    for name, meaning, label in sorted(rows, reverse=True, key=lambda row: row[0].startswith("vllm:")):
        yield f"`{name}`", meaning if label is None else f"{meaning} Label `{label}`."


def _model_cells() -> Iterable[tuple[str, ...]]:
    for memory, (room, models) in SUGGESTED.items():
        sizes = [f"{memory} GB", f"{room:g} GB"]
        for model in models:
            name = f"`{model.hub_id}`{' (sees)' if model.sees else ''}"
            yield *sizes, name, f"{model.gigabytes:g} GB", f"`{model.architecture}`"
            sizes = ["", ""]


def _route(path: str, methods: set[str]) -> str:
    return f"`{' '.join(method for method in _METHODS if method in methods)} {path}`"


def _model_lines() -> Iterable[str]:
    """Yield a line for the settings that a server has too, and one for each other setting of a model."""
    server, own = attrs.fields_dict(Settings), attrs.fields(ModelSettings)
    shared = ", ".join(f"`{field.name}`" for field in own if field.name in server)
    yield f"- in place of the server's: {shared}\n"
    yield from (_setting_line(field) for field in own if field.name not in server)


def _setting_line(field: attrs.Attribute[Any]) -> str:
    values = ", ".join(filter(None, (_setting_default(field.default), range_of(field))))
    return f"- `{field.name}`{values and f' ({values})'}: {field.metadata['meaning']}\n"


def examples() -> dict[str, str]:
    """Return the examples in the docstrings of `greenroom.api`, by name."""
    written = {name: _documented(name).partition("\nExample:\n") for name in api.__all__}
    return {name: dedent(code) + "\n" for name, (_, found, code) in written.items() if found}


def _names() -> Iterable[str]:
    """Yield the lines about each name of `greenroom.api`: its signature, and its docstring as Markdown."""
    code = examples()
    for name in api.__all__:
        text = re.sub(r"\nExample:\n.*", "", _documented(name), flags=re.DOTALL)
        text = re.sub(r"^    (\w+): ", r"- `\1`: ", text, flags=re.MULTILINE)
        text = re.sub(r"^ {8}", "  ", text, flags=re.MULTILINE)
        text = re.sub(r"^(Args|Attributes|Raises):\n", r"\1:\n\n", text, flags=re.MULTILINE)
        yield f"### `{name}`\n\n```\n{_signature(name)}\n```\n"
        if text:
            yield f"{text.strip()}\n"
        if name in code:
            yield f"```python\n{code[name]}```\n"


def _documented(name: str) -> str:
    value = getattr(api, name)
    return "" if get_args(value) else inspect.getdoc(value) or ""


def _signature(name: str) -> str:
    """Return the signature of a name; attrs classes of many fields have pages of their own."""
    value: Any = getattr(api, name)
    if union := get_args(value):
        return f"{name} = {' | '.join(each.__name__ for each in union)}"
    fields = attrs.fields(value) if attrs.has(value) else None
    if fields is None and not inspect.isfunction(value):
        return f"class {name}"
    own = str(inspect.signature(value)).replace(" = NOTHING", " = …").replace(" -> None", "")
    own = re.sub(r"(: |-> )(['\"])(.*?)\2", r"\1\3", own)
    if fields is not None:
        return f"class {name}{own if len(fields) < 20 else '(…)'}"
    return f"{'async def' if inspect.iscoroutinefunction(value) else 'def'} {name}{own}"


def _setting_default(default: object) -> str:
    match default:
        case None | ():
            return ""
        case bool():
            return f"`{str(default).lower()}`"
        case str():
            return f'`"{default}"`'
        case _:
            return f"`{default}`"


def _parameter_line(field: attrs.Attribute[Any]) -> str:
    default = _parameter_default(field.default)
    values = allowed(field.metadata) + (default and f"; default {default}")
    return f"- `{field.name}` ({values}): {field.metadata['meaning']}\n"


def _parameter_default(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value in (None, ()) else f"{value:g}"


def _with_table(text: str, head: str, rows: Iterable[tuple[str, ...]]) -> str:
    return _with_rows(text, head, (f"| {' | '.join(row)} |\n" for row in rows))


def _with_rows(text: str, head: str, lines: Iterable[str]) -> str:
    before, found, after = text.partition(head)
    if not found:
        return text
    return before + head + "".join(lines) + re.sub(r"\A([|-].*\n)*", "", after)


if __name__ == "__main__":
    for page in PAGES:
        (NOTES / page).write_text(rewritten((NOTES / page).read_text(encoding="utf-8")), encoding="utf-8")

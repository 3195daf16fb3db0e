"""Write the tables of objects and routes in docs/api.md from the API's own document: `python -m tools.api`.

A test fails when the page is stale.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from postroom.control.api import OPERATIONS
from postroom.control.openapi.document import document
from postroom.control.ops.table import SOCKET, Operation
from postroom.errors import http_status

PAGE = Path(__file__).resolve().parent.parent / "docs" / "api.md"
BEGIN = "<!-- `python -m tools.api` writes from here on -->\n"
END = "<!-- to here -->\n"

ALWAYS = {"400", "401", "403", "413", "422", "429", "431", "503"}
"""Refusals that any route may answer with; the text before the table says so."""

NAMELESS = {"GrantScope", "HookEvent", "Problem", "Ready", "Scope", "TaskState"}
PLAIN = {"string": "text", "integer": "number", "number": "number", "boolean": "true or false"}


@cache
def described() -> dict[str, Any]:
    """The document of the API."""
    return document(OPERATIONS)


def written(page: str) -> str:
    """`page` with the tables as they are now between its two marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + "\n".join(_lines(described())) + "\n" + END + after


def _lines(made: dict[str, Any]) -> Iterator[str]:
    schemas = made["components"]["schemas"]
    yield from ("", "| object | what it is | fields |", "| --- | --- | --- |")
    for name, schema in sorted(schemas.items()):
        if not name.endswith("Body") and name not in NAMELESS:
            yield f"| {name} | {_cell(schema['description'])} | {', '.join(_fields(schema))} |"
    yield from ("", "| body | fields |", "| --- | --- |")
    for name, schema in sorted(schemas.items()):
        if name.endswith("Body"):
            yield f"| {name} | {', '.join(_fields(schema))} |"
    yield from ("", "## Routes", "", *textwrap.wrap(_REFUSALS, 118), "")
    yield from ("| route | scope | does | answers |", "| --- | --- | --- | --- |")
    rows = [
        (operation["tags"][0], _row(method, path, operation))
        for path, operations in made["paths"].items()
        for method, operation in operations.items()
    ]
    order = list(dict.fromkeys(tag for tag, _ in rows))
    yield from (row for _, row in sorted(rows, key=lambda row: order.index(row[0])))
    # OpenAPI has no form for these.
    yield from ("", "| WebSocket | scope | does | refuses |", "| --- | --- | --- | --- |")
    yield from (_socket_row(each) for each in OPERATIONS if each.method == SOCKET)
    yield ""


def _socket_row(route: Operation) -> str:
    query = "&".join(f"{name}=" for name in route.query)
    scope = route.demand.scope
    refused = sorted({str(http_status(error(""))) for error in route.fails})
    does = _cell(inspect.getdoc(route.call) or "")
    asked = f"`{route.path}{'?' if query else ''}{query}`"
    return f"| {asked} | {scope.value if scope else '-'} | {does} | {', '.join(refused)} |"


_REFUSALS = (
    "Every route may answer 400, 401, 403, 422, 429, 431 and 503, and one with a body 413 ([Errors](#errors)). Those "
    "that are of one route stand beside it. `scope` is what a key must have; - is for everybody, without a key. `*` "
    "marks what workers may call through their own doors. A list answers at most `limit` entries."
)


def _row(method: str, path: str, operation: dict[str, Any]) -> str:
    query = [
        f"{part['name']}=" for part in operation.get("parameters", ()) if part["in"] == "query"
    ]
    asked = f"`{method.upper()} {path}{'?' if query else ''}{'&'.join(query)}`"
    body = [
        content["schema"].get("$ref", "content").rpartition("/")[2]
        for content in operation.get("requestBody", {}).get("content", {}).values()
    ]
    scope = (operation["x-postroom-scope"] or "-") + (
        "*" if operation.get("x-postroom-door") else ""
    )
    does = operation["summary"] + "."
    if operation["description"].rstrip(".") != operation["summary"]:
        does += " " + operation["description"].replace(
            "\n\nWorkers call it through their own doors, too.", ""
        )
    given = [
        f"{status} {_given(answer)}".strip()
        for status, answer in operation["responses"].items()
        if status < "400"
    ]
    refused = sorted({status for status in operation["responses"] if status >= "400"} - ALWAYS)
    answers = ", ".join(given) + ("; " + ", ".join(refused) if refused else "")
    return f"| {' '.join([asked, *body])} | {scope} | {_cell(does)} | {answers} |"


def _given(answer: dict[str, Any]) -> str:
    for media_type, content in answer.get("content", {}).items():
        if events := content.get("x-postroom-events"):
            return "events " + ", ".join(
                f"`{name}` ({_type(data)})" for name, data in events.items()
            )
        if "$ref" in content["schema"]:
            return _type(content["schema"])
        return "an object" if media_type == "application/json" else f"`{media_type}`"
    return ""


def _fields(schema: dict[str, Any]) -> Iterator[str]:
    required = schema.get("required", ())
    for name, field in schema["properties"].items():
        yield f"`{name}`{'' if name in required else '?'} {_type(field)}"


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return schema["$ref"].rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    if "enum" in schema:
        return "/".join(f"`{one}`" for one in schema["enum"])
    if schema.get("type") == "array":
        return f"[{_type(schema['items'])}]"
    if schema.get("type") == "null":
        return "null"
    if schema.get("format") == "date-time":
        return "time"
    return PLAIN.get(schema.get("type", ""), "object")


def _cell(text: str) -> str:
    return " ".join(text.replace("\n- `", "; `").split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")

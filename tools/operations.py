"""Write what an operation of the API is as plain data, and the signatures of the client: `python -m tools.operations`.

Both are made from the API's own document (`tools.api`); a test fails when a file is stale.
"""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

from postroom.client.words import Words, every
from postroom.control.api import OPERATIONS as OF_API
from postroom.control.ops.table import SOCKET
from postroom.protocol import answers, shapes
from tools.api import described

SOURCE = Path(__file__).resolve().parent.parent / "src" / "postroom"
TABLE = SOURCE / "protocol" / "operations.py"
STUB = SOURCE / "client" / "methods.pyi"

HEAD = '''"""The operations of the HTTP API as plain data, by name: route, fields, answer, help (docs/api.md).

Written by `python -m tools.operations`. Nothing is imported here, so that a command line and its completion have names,
fields and help without what checks them.

`path`, `query` and `body` have the fields, each as its name, type and help. `required` names those that must be given,
`choices` has the values of those that take no other, `answer` the shape (`protocol.shapes`, `protocol.answers`), or the
media type of what is no JSON; `events` says that it is a stream of them. A body that is `optional` may be missing. A
WebSocket has the method WEBSOCKET.
"""

from __future__ import annotations

# fmt: off
# ruff: noqa: E501, Q003
'''

PLAIN = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "array": "list"}


def table() -> dict[str, dict[str, Any]]:
    """The operations, by name: the one place that knows where they are read from."""
    made = described()
    schemas = made["components"]["schemas"]
    names = {f"{each.method} {each.path}": each.name for each in OF_API}
    found = {}
    for path, operations in made["paths"].items():
        for method, operation in operations.items():
            route = f"{method.upper()} {path}"
            name = names.get(route) or f"room{path.replace('/', '.')}"  # it needs no operation
            found[name] = {"route": route, **_operation(operation, schemas)}
    for socket in (each for each in OF_API if each.method == SOCKET):
        help_ = inspect.getdoc(socket.call) or ""
        found[socket.name] = {
            "route": f"{SOCKET} {socket.path}",
            "help": help_.partition("\n")[0].rstrip("."),
            "path": tuple((name, "str", "") for name in socket.places.values()),
            "query": tuple((name, "int", "") for name in socket.query),
            "events": True,
        }
    return dict(sorted(found.items(), key=lambda each: each[1]["route"].split(" ")[::-1]))


def written_table() -> str:
    """The content of `protocol/operations.py`."""
    rows = "".join(f"    {_text(name)}: {_text(row)},\n" for name, row in table().items())
    return f"{HEAD}\nOPERATIONS = {{\n{rows}}}\n"


def _text(value: Any) -> str:
    match value:
        case str():
            return json.dumps(value, ensure_ascii=False)
        case tuple():
            return f"({', '.join(map(_text, value))}{',' * (len(value) == 1)})"
        case dict():
            return f"{{{', '.join(f'{_text(key)}: {_text(each)}' for key, each in value.items())}}}"
    return repr(value)


def _operation(operation: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {"help": operation["summary"]}
    required, taken = [], {}
    for place in ("path", "query"):
        fields = [each for each in operation.get("parameters", ()) if each["in"] == place]
        taken |= {each["name"]: each["schema"] for each in fields}
        if fields:
            row[place] = tuple(_field(each["name"], each["schema"], each) for each in fields)
        required += [each["name"] for each in fields if place != "path" and each.get("required")]
    asked = operation.get("requestBody", {})
    for kind, content in asked.get("content", {}).items():
        schema = schemas.get(content["schema"].get("$ref", "").rpartition("/")[2])
        if schema is None:
            row["content"] = kind
        else:
            body = schema["properties"].items()
            row["body"] = tuple(_field(name, field, field) for name, field in body)
            taken |= schema["properties"]
            required += schema.get("required", ())
            row |= {} if asked.get("required") else {"optional": True}
    if required:
        row["required"] = tuple(required)
    choices = {name: found for name, field in taken.items() if (found := _choices(field, schemas))}
    return row | ({"choices": choices} if choices else {}) | _answer(operation)


def _answer(operation: dict[str, Any]) -> dict[str, Any]:
    for status, answer in operation["responses"].items():
        for kind, content in answer.get("content", {}).items():
            if status >= "400":
                continue
            if "x-postroom-events" in content:
                return {"answer": kind, "events": True}
            if kind != "application/json":
                return {"answer": kind}
            return {"answer": content["schema"].get("$ref", "object").rpartition("/")[2]}
    return {}


def _field(name: str, schema: dict[str, Any], about: dict[str, Any]) -> tuple[str, str, str]:
    return name, _type(schema), about.get("description", "")


def _choices(schema: dict[str, Any], schemas: dict[str, Any]) -> tuple[str, ...]:
    """The values of a field, or of the parts of a list, that takes no other; "" for none of them is left out."""
    if "$ref" in schema:
        return _choices(schemas[schema["$ref"].rpartition("/")[2]], schemas)
    for each in (*schema.get("anyOf", ()), *([schema["items"]] if "items" in schema else ())):
        if found := _choices(each, schemas):
            return found
    return tuple(value for value in schema.get("enum", ()) if value)


def _type(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return next(_type(one) for one in schema["anyOf"] if one.get("type") != "null")
    if "$ref" in schema or "enum" in schema:
        return "str"
    return PLAIN.get(schema.get("type", ""), "object")


# ── signatures ───────────────────────────────────────────────────────────────────────────────────────

TYPES = {
    "list": "Sequence[Any]",
    "object": "Mapping[str, Any] | None",
    "str": "str",
    "bool": "bool",
}
NOTHING = {"str": '""', "bool": "False", "list": "()"}
"""What an argument is that is not given; None for the others."""

STREAM = (
    "away: Callable[[bool], None] = ...",
    "is_last: Callable[[Event], bool] | None = None",
)
"""Further arguments of a stream (`client.calls`)."""

STUB_HEAD = """# Written by `python -m tools.operations`: the methods of `methods.py`, with their types.
# fmt: off
# ruff: noqa: A002, E501, I001

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from postroom.client.stream import AsyncEventStream, Event, EventStream
from postroom.client.transport import AsyncTransport
from postroom.protocol.answers import {answers}
from postroom.protocol.shapes import {shapes_}
"""


def written_stub() -> str:
    """The content of `client/methods.pyi`."""
    made = table()
    signatures = [_signature(words, made[operation]) for operation, words in every() if words.made]
    text = "\n".join(signatures)
    names = set(re.findall(r"\w+", " ".join(line.partition("->")[2] for line in signatures)))
    head = STUB_HEAD.format(
        answers=", ".join(sorted(names & set(_own(answers)))),
        shapes_=", ".join(sorted(names & set(_own(shapes)))),
    )
    tasks = text.replace("    def ", "    async def ").replace("EventStream", "AsyncEventStream")
    tasks = re.sub(r"async (def follow_)", r"\1", tasks)
    return (
        f"{head}\n\nclass AsyncMethods:\n    transport: AsyncTransport\n{tasks}\n"
        f"\n\nclass Methods:\n{text}\n"
    )


def _own(module: ModuleType) -> dict[str, Any]:
    """The shapes that a module itself has."""
    made = re.findall(r"^(?:class )?(\w+)(?: = |\(|:)", inspect.getsource(module), re.MULTILINE)
    return {name: vars(module)[name] for name in made if name in vars(module)}


def _signature(words: Words, row: dict[str, Any]) -> str:
    named = {field: argument for argument, field in words.called.items()}
    fields = {
        named.get(name, name): (kind, name in row.get("required", ()) or _is_checked(name, words))
        for place in ("query", "body")
        for name, kind, _ in row.get(place, ())
    }
    if "content" in row:
        fields["content"] = ("object", True)
    by_place = [f"{name}: str" for name, *_ in row.get("path", ())]
    by_place += [_argument(name, *fields.pop(name), words) for name in words.takes.split()]
    rest = [_argument(n, *about, words) for n, about in fields.items() if n not in words.fixed]
    if row.get("events"):
        rest += [f"for_ever: bool = {'for_ever' in words.empty}", *STREAM]
    arguments = ", ".join(
        ["self", *by_place, *(["*", *sorted(rest, key=_optional)] if rest else [])]
    )
    if row.get("events"):
        return f"    def {words.name}({arguments}) -> EventStream: ..."
    return f"    def {words.name}({arguments}) -> {_given(words, row)}: ..."


def _is_checked(field: str, words: Words) -> bool:
    called = {field: argument for argument, field in words.called.items()}
    return called.get(field, field) in words.checked.split()


def _optional(argument: str) -> bool:
    return "=" in argument


def _argument(name: str, kind: str, required: bool, words: Words) -> str:
    shape = TYPES.get(kind, kind)
    if name in words.empty:
        return f"{name}: {shape} = {_text(words.empty[name])}"
    if required:
        return f"{name}: {shape.removesuffix(' | None')}"
    shape += " | None" if kind in {"int", "float"} else ""
    return f"{name}: {shape} = {NOTHING.get(kind, 'None')}"


def _given(words: Words, row: dict[str, Any]) -> str:
    answer = row.get("answer", "")
    if answer == "text/plain":
        return "str"
    if words.gives:
        found = inspect.get_annotations(_own(answers)[answer])[words.gives]
        return str(found.__forward_arg__).replace("Sequence[", "list[").removesuffix(" | None")
    known = answer in _own(answers) or answer in _own(shapes)
    return answer if known else "None" if not answer else "dict[str, Any]"


if __name__ == "__main__":
    TABLE.write_text(written_table(), encoding="utf-8")
    STUB.write_text(written_stub(), encoding="utf-8")

"""Holds every answer of the API against the document that describes it: status, media type, shape.

The server makes no models of its answers (`postroom.control.router`); this is what finds one that has another form.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import httpx2
from jsonschema_rs import Draft202012Validator

from postroom.control.api import OPERATIONS
from postroom.control.openapi.document import document

JSON = ("application/json", "application/problem+json")


@cache
def contract() -> Contract:
    """The contract of the API, the default organisation's."""
    return Contract(document(OPERATIONS))


class Contract:
    """The document of one API, read as what its answers must be."""

    def __init__(self, described: dict[str, Any]) -> None:
        self.document = described
        self._components = {"components": _closed(described["components"])}
        self._paths = [
            (
                re.compile(
                    re.sub(
                        r"{\w+}", "[^/]+", re.escape(path).replace(r"\{", "{").replace(r"\}", "}")
                    )
                ),
                operations,
            )
            for path, operations in described["paths"].items()
        ]
        self._validators: dict[str, Draft202012Validator] = {}

    async def hold(self, response: httpx2.Response) -> None:
        """Check an answer that a client got; a stream only by its head."""
        kind = response.headers.get("content-type", "")
        if kind.partition(";")[0] in JSON:
            await response.aread()
        read = response.content if response.is_stream_consumed else b""
        request = response.request
        self.check(request.method, request.url.path, response.status_code, kind, read)

    def operation(self, method: str, path: str) -> dict[str, Any] | None:
        """What the document says of a request; None where it says nothing."""
        found = [operations for pattern, operations in self._paths if pattern.fullmatch(path)]
        # A path without parameters comes before one with them, as in the router.
        for operations in sorted(found, key=lambda each: "parameters" in str(each)[:2000]):
            if method.lower() in operations:
                return operations[method.lower()]
        return None

    def check(self, method: str, path: str, status: int, media_type: str, body: bytes) -> None:
        """Fail if the document does not know the answer; A2A has a specification of its own."""
        if "/a2a/" in path:
            return
        operation = self.operation(method, path)
        if operation is None:
            assert status in (404, 405), f"{method} {path} is not in the document"
            return
        about = f"{method} {path} -> {status}"
        assert str(status) in operation["responses"], f"{about}: undocumented status"
        content = operation["responses"][str(status)].get("content", {})
        kind = media_type.partition(";")[0]
        assert not content or kind in content, f"{about}: {kind!r} is undocumented"
        if kind in JSON and content and method != "HEAD":
            self._validate(content[kind]["schema"], json.loads(body), about)

    def _validate(self, schema: Mapping[str, Any], value: Any, about: str) -> None:
        key = json.dumps(schema)
        if key not in self._validators:
            self._validators[key] = Draft202012Validator({**schema, **self._components})
        errors = [
            f"{error.instance_path}: {error.message}"
            for error in self._validators[key].iter_errors(value)
        ]
        assert not errors, f"{about}: {errors[:5]}"


def _closed(components: Mapping[str, Any]) -> dict[str, Any]:
    """The components, in which no shape has a field that is not described."""
    schemas = {
        name: schema | ({"additionalProperties": False} if "properties" in schema else {})
        for name, schema in components["schemas"].items()
    }
    return {"schemas": schemas}

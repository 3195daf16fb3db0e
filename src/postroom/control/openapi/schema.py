"""JSON Schema of the shapes (`protocol.shapes`), which are the only place where an answer's JSON is described."""

from __future__ import annotations

import inspect
import json
import re
import types
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from postroom.control.ops.table import Field
from postroom.protocol.shapes import Format

Schema = dict[str, Any]

REF = "#/components/schemas/"

_PLAIN: dict[Any, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    Any: {},
    object: {},
}


class Schemas:
    """Makes schemas of types, and keeps those of the shapes that were met.

    Attributes:
        components: schemas by the name of their shape.
    """

    def __init__(self) -> None:
        self.components: dict[str, Schema] = {}

    def of(self, hint: Any) -> Schema:
        """The schema of a type."""
        if hint in _PLAIN:
            return dict(_PLAIN[hint])
        if is_typeddict(hint):
            return self._shape(hint)
        if isinstance(hint, type) and issubclass(hint, Enum):
            return {"type": "string", "enum": [member.value for member in hint]}
        origin, inner = get_origin(hint), get_args(hint)
        if origin is Annotated:
            return self.of(inner[0]) | _marks(inner[1:])
        if origin is NotRequired:
            return self.of(inner[0])
        if origin is Literal:
            return {"type": "string", "enum": list(inner)}
        if origin in (Union, types.UnionType):
            return {"anyOf": [self.of(one) for one in inner]}
        if origin in (list, Sequence):
            return {"type": "array", "items": self.of(inner[0])}
        if origin in (dict, Mapping):
            values = self.of(inner[1])
            return {"type": "object"} | ({"additionalProperties": values} if values else {})
        raise TypeError(f"{hint} has no form in JSON Schema here")

    def of_request(self, field: Field) -> Schema:
        """The schema of a field of a request, as pydantic checks it; of a body that may be left out as of one."""
        made = field.adapter.json_schema(ref_template=REF + "{model}")
        for name, schema in made.pop("$defs", {}).items():
            self.components.setdefault(name, without_defaults(schema))
        if "properties" in made:
            self.components.setdefault(made["title"], without_defaults(made))
            return {"$ref": REF + made["title"]}
        if isinstance(made.get("anyOf"), list) and field.is_body:
            made = made["anyOf"][0]
        return made

    def _shape(self, shape: Any) -> Schema:
        name = shape.__name__
        if name not in self.components:
            made: Schema = {"type": "object", "title": name}
            self.components[name] = made  # first: a shape may hold itself
            if shape.__doc__:
                made["description"] = _text(inspect.cleandoc(shape.__doc__))
            hints = get_type_hints(shape, include_extras=True)
            made["properties"] = {key: self.of(hint) for key, hint in hints.items()}
            # `__required_keys__` would not see the marks: with postponed annotations they are texts.
            made["required"] = [
                key
                for key, hint in hints.items()
                if shape.__total__ and get_origin(hint) is not NotRequired
            ]
        return {"$ref": REF + name}


def without_defaults(schema: Schema) -> Schema:
    """`schema` of a request with its defaults in words: generators of clients demand a field that has a `default`."""
    made = {
        key: {name: without_defaults(field) for name, field in value.items()}
        if key in {"properties", "$defs"}
        else _without(value)
        for key, value in schema.items()
        if key != "default"
    }
    if given := schema.get("default"):  # what is empty without it says so itself
        made["description"] = (
            f"{schema.get('description', '')} Without it: {json.dumps(given)}.".strip()
        )
    return made


def _without(value: Any) -> Any:
    if isinstance(value, list):
        return [_without(each) for each in value]
    return without_defaults(value) if isinstance(value, dict) else value


def _text(docstring: str) -> str:
    """A docstring as CommonMark: the attributes as a list."""
    return re.sub(r"(?m)^    (\w+):", r"- `\1`:", docstring.replace("Attributes:\n", ""))


def _marks(metadata: Sequence[Any]) -> Schema:
    return next(({"format": mark.name} for mark in metadata if isinstance(mark, Format)), {})

"""What a template needs of the machine and of the person who spawns it: a program, and a key for its model.

[program]      name, install, tested, base
[keys.NAME]    url, header, variable, obtain, set

`postroom spawn` finds the program and fills the parameters `PROGRAM`, `SEARCH` and `MOUNTS` with its place; it fills
`CREDENTIAL` with the name of a stored key, and the parameters that the key's table sets.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from postroom.errors import InvalidTemplate
from postroom.protocol.template import _check_shape, _fill, _parameters

PROGRAM = "program"
"""Parameter for the path of the program."""
SEARCH = "program_path"
"""Parameter for the folders that it needs in its search path, each followed by a colon."""
MOUNTS = "program_mounts"
"""Parameter for the places of the machine that it consists of, one a line."""
CREDENTIAL = "credential"
"""Parameter for the name of the credential that the gateway adds."""


@dataclass(frozen=True, slots=True)
class KeyForm:
    """A kind of key that an agent can use.

    Attributes:
        name: what it is stored as, unless the person says otherwise.
        url: where it is sent: scheme, host, and perhaps a path.
        header: how, with `{secret}` in it.
        variable: the environment variable in which people have it.
        obtain: how to get one, for people.
        values: of parameters, where this key is used.
    """

    name: str
    url: str
    header: str
    variable: str = ""
    obtain: str = ""
    values: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Needs:
    """What a template needs.

    Attributes:
        program: name of the program, "" for a template that finds its own.
        install: the command that installs it.
        tested: the version that Postroom's tests run, "" for none.
        keys: the first that there is, is taken; () for an agent without one.
        parameters: all that the template declares, filled.
        base: the environment variable by which people give the program another place of its model, "" for none.
    """

    program: str = ""
    install: str = ""
    tested: str = ""
    keys: tuple[KeyForm, ...] = ()
    parameters: Mapping[str, str] = field(default_factory=dict, hash=False)
    base: str = ""


def needs(text: str, values: Mapping[str, str] | None = None) -> Needs:
    """The needs of the template `text`, with `values` instead of its parameters' defaults.

    Raises:
        InvalidTemplate: as `parse_template`, as far as these tables go.
    """
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidTemplate(f"the template is not TOML: {error}") from error
    _check_shape(document)
    parameters = _parameters(document, values or {})
    filled: dict[str, Any] = _fill(document, parameters)
    program = filled.get("program", {})
    return Needs(
        program.get("name", ""),
        program.get("install", ""),
        program.get("tested", ""),
        tuple(_key(name, table) for name, table in filled.get("keys", {}).items()),
        parameters,
        program.get("base", ""),
    )


def _key(name: str, table: Mapping[str, Any]) -> KeyForm:
    return KeyForm(
        name,
        table.get("url", ""),
        table.get("header", "Authorization: Bearer {secret}"),
        table.get("variable", ""),
        table.get("obtain", ""),
        table.get("set", {}),
    )

"""How many bytes a text of a row has, in either dialect."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Function, Integer
from sqlalchemy.ext.compiler import compiles


class octets(Function):  # noqa: N801 (it is written like a function of SQL)
    """Bytes of a text."""

    type = Integer()
    inherit_cache = True

    def __init__(self, column: ColumnElement) -> None:
        super().__init__("octet_length", column)


@compiles(octets, "sqlite")
def _octets_sqlite(element: octets, compiler: Any, **options: Any) -> str:
    # `octet_length` came with 3.43.
    inner = compiler.process(element.clauses, **options)
    return f"length(CAST({inner} AS BLOB))"

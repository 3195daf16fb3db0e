"""SurrealDB, embedded in this process or on a server: where it is, and one connection to it.

The package `surrealdb` is an extra (`postroom-a2a[surrealdb]`); nothing here imports it before a connection is opened.
"""

from __future__ import annotations

from postroom_a2a.surreal.address import Address
from postroom_a2a.surreal.connection import Connection, open_connection
from postroom_a2a.surreal.faults import Away, Failed, InUse, NotInstalled, Refuses, Thrown

__all__ = [
    "Address",
    "Away",
    "Connection",
    "Failed",
    "InUse",
    "NotInstalled",
    "Refuses",
    "Thrown",
    "open_connection",
]

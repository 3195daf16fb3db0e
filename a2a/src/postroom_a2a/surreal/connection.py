"""One connection to a SurrealDB: the engine in this process, or a server's RPC over a WebSocket.

Both take the same requests in CBOR. A request with several statements between BEGIN and COMMIT is one transaction;
that is the only kind that every form has. Blocks: call in a thread. Several threads may share one connection.

Two processes may open one folder of the embedded engine, and each then overwrites what the other has stored. So the
folder has a lock of ours. And what is committed is flushed only if the environment says so before the engine opens.
"""

from __future__ import annotations

import os
import ssl
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from postroom_a2a import folder_lock
from postroom_a2a.errors import PostroomError
from postroom_a2a.surreal.address import Address
from postroom_a2a.surreal.faults import (
    AGAIN,
    NOT_RUN,
    Away,
    Failed,
    InUse,
    Refuses,
    Thrown,
    check_installed,
    fault,
    first_line,
)

SYNC = "SURREAL_SYNC_DATA"

LOCK = "postroom.lock"
"""File of the lock, in the folder of the database."""

CONNECT_TIMEOUT = 5.0
"""Seconds until a server has taken the connection."""

ANSWER_TIMEOUT = 25.0
"""Seconds until a server has answered: a little before those give up who wait for us."""

TRIES = 5
"""Runs of a transaction that met another one."""


class Engine(Protocol):
    """Takes requests; the embedded one and a server."""

    def ask(self, method: str, params: Sequence[Any]) -> Any:
        """The result of a request.

        Raises:
            Away: there is no server, or it went away meanwhile.
            Failed, Refuses: it cannot do it.
        """

    def close(self) -> None:
        """End it; idempotent."""


class Connection:
    """One database in a namespace.

    Attributes:
        shown: its address, for people.
    """

    def __init__(self, engine: Engine, shown: str) -> None:
        self.shown = shown
        self._engine = engine

    def run(self, text: str, values: Mapping[str, Any] | None = None) -> list[Any]:
        """The results of the statements in `text`; a transaction that met another one is run again.

        Raises:
            Thrown: a statement has thrown.
            Away, Failed, Refuses: the database cannot do it.
        """
        for _ in range(TRIES - 1):
            try:
                return self._once(text, values)
            except Failed as error:
                if not any(sign in error.message.lower() for sign in AGAIN):
                    raise
        return self._once(text, values)

    def rows(self, text: str, values: Mapping[str, Any] | None = None) -> list[Any]:
        """The result of the one statement in `text`; raises as `run`."""
        return self.run(text, values)[0] or []

    def _once(self, text: str, values: Mapping[str, Any] | None) -> list[Any]:
        found = self._engine.ask("query", [text, dict(values or {})])
        said = [str(one["result"]) for one in found if one["status"] != "OK"]
        if said:
            # The others of its transaction say only that they were not run.
            raise fault(next((each for each in said if not each.startswith(NOT_RUN)), said[0]))
        return [one["result"] for one in found]

    def close(self) -> None:
        """End the connection; idempotent."""
        self._engine.close()


def open_connection(address: Address, database: str, folder: Path | None = None) -> Connection:
    """Open the database of that name, and make it if it is not there.

    Args:
        folder: of the embedded engine; None for the one in the address, or in memory.

    Raises:
        NotInstalled: the package is missing.
        InUse: another process has the folder open.
        Away: the server cannot be reached, or does not let us in.
        Refuses: the folder cannot be written.
        Failed: the database is damaged, or of another version.
    """
    check_installed()
    if address.embedded:
        engine: Engine = _Embedded(folder or address.folder, database)
    else:
        engine = _Server(address, database)
    return Connection(engine, address.shown)


class _Embedded(Engine):
    """The engine in this process. It ends with the process, and keeps nobody from ending."""

    def __init__(self, folder: Path | None, database: str) -> None:
        from surrealdb import Surreal

        self._lock = -1 if folder is None else _locked(folder)
        os.environ[SYNC] = "true"
        try:
            url = "mem://" if folder is None else f"file://{quote(str(folder / 'data'))}"
            self._driver: Any = Surreal(url)  # its stated type has no `connect`
            self._driver.connect()
            self._driver.use("postroom", database)
        except (RuntimeError, OSError) as error:
            self._unlock()
            raise _engine_fault(error) from error
        except BaseException:
            self._unlock()
            raise

    def ask(self, method: str, params: Sequence[Any]) -> Any:
        """As `Engine`; it knows only queries."""
        assert method == "query"  # noqa: S101
        try:
            found = self._driver.query_raw(*params)
        except RuntimeError as error:  # what its Rust part reports
            raise _engine_fault(error) from error
        if "error" in found:
            raise _engine_fault(found["error"])
        return found["result"]

    def close(self) -> None:
        """As `Engine`; the lock is freed last."""
        if self._lock != -2:
            self._driver.close()
            self._unlock()
            self._lock = -2

    def _unlock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _locked(folder: Path) -> int:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder_lock.acquire(folder / LOCK)
    except folder_lock.Held as error:
        raise InUse(
            f"the SurrealDB in {folder} is open in the process with pid {error.holder}",
            remedy="stop it, or name another folder",
        ) from error
    except OSError as error:
        raise Refuses(
            f"the folder {folder} cannot be written: {error.strerror}",
            remedy="make room, or check its owner",
        ) from error


def _engine_fault(error: object) -> Exception:
    text = str(error).removeprefix("There was a problem with the database: ")
    found = fault(text)
    return Failed(f"SurrealDB reports: {first_line(text)}") if isinstance(found, Thrown) else found


class _Server(Engine):
    """A server. A connection that was lost is opened anew by the next request."""

    def __init__(self, address: Address, database: str) -> None:
        self._address = address
        self._database = database
        self._socket: Any = None
        self._open = ExitStack()  # websockets wants it so
        self._turn = threading.Lock()  # one request at a time has the socket
        self._number = 0
        with self._turn:
            self._connect()

    def ask(self, method: str, params: Sequence[Any]) -> Any:
        with self._turn:
            if self._socket is None:
                self._connect()
            return self._asked(method, params)

    def close(self) -> None:
        self._socket = None
        self._open.close()

    def _connect(self) -> None:
        from websockets.exceptions import WebSocketException
        from websockets.sync.client import connect
        from websockets.typing import Subprotocol

        secure = self._address.server.startswith("wss:")
        try:
            self._socket = self._open.enter_context(
                connect(
                    self._address.server,
                    subprotocols=[Subprotocol("cbor")],
                    open_timeout=CONNECT_TIMEOUT,
                    close_timeout=1.0,
                    max_size=None,
                    ssl=ssl.create_default_context() if secure else None,
                    proxy=None,
                )
            )
        except (OSError, WebSocketException) as error:
            raise self._away(error) from error
        try:
            if self._address.user:
                self._sign_in()
            self._asked("use", [self._address.namespace, self._database])
        except PostroomError:
            self.close()
            raise

    def _sign_in(self) -> None:
        """As a user of the database, else of the namespace, else of the whole server."""
        who = {"user": self._address.user, "pass": self._address.password}
        named = {"NS": self._address.namespace}
        for level in ({**named, "DB": self._database}, named, {}):
            try:
                self._asked("signin", [{**level, **who}])
            except Failed:
                continue
            return
        raise Away(
            f"{self._address.shown} does not let the user {self._address.user!r} in",
            remedy="check user, password and names in the address",
        )

    def _asked(self, method: str, params: Sequence[Any]) -> Any:
        from surrealdb.data.cbor import decode, encode
        from websockets.exceptions import WebSocketException

        self._number += 1
        asked = {"id": str(self._number), "method": method, "params": list(params)}
        try:
            self._socket.send(encode(asked))
            while True:
                answer = decode(self._socket.recv(timeout=ANSWER_TIMEOUT))
                if (
                    answer.get("id") == asked["id"]
                ):  # an answer to a request that was given up is not ours
                    break
        except (OSError, WebSocketException, TimeoutError) as error:
            self.close()
            raise self._away(error) from error
        if "error" in answer and answer["error"] is not None:
            said = answer["error"]
            raise fault(str(said.get("message", said) if isinstance(said, dict) else said))
        return answer.get("result")

    def _away(self, error: Exception) -> Away:
        return Away(
            f"{self._address.shown} does not answer: {first_line(str(error)) or type(error).__name__}",
            remedy="start SurrealDB, or check its address",
        )

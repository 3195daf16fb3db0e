"""A server for tests: SurrealDB's embedded engine behind a WebSocket, as no server's program is in a registry.

The engine does what a server does with a request: it checks users and permissions, and runs statements. Ours are the
frames, and that each connection has a session of its own, which the engine has once.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from surrealdb import Surreal
from surrealdb.data.cbor import decode, encode
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve
from websockets.typing import Subprotocol

USER, PASSWORD = "postroom", "kept-out-of-every-log"


class SurrealServer:
    """Takes connections on a port of its own; everything is in memory.

    Attributes:
        asked: methods and statements of all requests.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._engine: Any = Surreal("mem://")
        self._engine.connect()
        self._engine.use("owner", "owner")
        self._engine.query(f"DEFINE USER {USER} ON ROOT PASSWORD '{PASSWORD}' ROLES OWNER")
        self._turn = threading.Lock()
        self._port = 0
        self._open: set[ServerConnection] = set()
        self._server: Any = None
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        return self._port

    def url(self, database: str = "", *, password: str = PASSWORD) -> str:
        who = f"{USER}:{password}" if password else USER
        return f"surrealdb+ws://{who}@127.0.0.1:{self._port}/post/{database}".rstrip("/")

    def start(self) -> None:
        self._server = serve(
            self._talk, "127.0.0.1", self._port, subprotocols=[Subprotocol("cbor")], max_size=None
        )
        self._port = self._server.socket.getsockname()[1]
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def stop(self) -> None:
        """Break all connections and take no more; what is stored stays."""
        if self._server is None:
            return
        self._server.shutdown()
        for connection in list(self._open):
            connection.close()
        assert self._thread is not None
        self._thread.join()
        self._server = None

    def close(self) -> None:
        self.stop()
        self._engine.close()

    def _talk(self, connection: ServerConnection) -> None:
        session: dict[str, Any] = {}
        self._open.add(connection)
        try:
            for frame in connection:
                asked = decode(frame if isinstance(frame, bytes) else frame.encode())
                with self._turn:
                    answer = self._answer(session, asked["method"], asked["params"])
                connection.send(encode({"id": asked["id"], **answer}))
        except ConnectionClosed:
            pass
        finally:
            self._open.discard(connection)

    def _answer(self, session: dict[str, Any], method: str, params: list[Any]) -> dict[str, Any]:
        self.asked.append(method if method != "query" else params[0])
        try:
            return {"result": self._done(session, method, params)}
        except Exception as error:  # noqa: BLE001 (whatever the engine says is the answer)
            return {"error": {"code": -32000, "message": str(error)}}

    def _done(self, session: dict[str, Any], method: str, params: list[Any]) -> Any:
        if method == "signin":
            session["token"] = self._engine.signin(_named(params[0])).access
            return session["token"]
        if "token" not in session:
            raise PermissionError("IAM error: Not enough permissions to perform this action")
        if method == "use":
            session["use"] = params
            return None
        self._engine.authenticate(session["token"])
        self._engine.use(*session["use"])
        answer = self._engine.query_raw(*params)
        if "error" in answer:
            raise RuntimeError(str(answer["error"]))
        return answer["result"]


def _named(who: dict[str, str]) -> dict[str, str]:
    names = {"NS": "namespace", "DB": "database", "user": "username", "pass": "password"}
    return {names[key]: value for key, value in who.items()}


@contextmanager
def running_surreal() -> Generator[SurrealServer]:
    server = SurrealServer()
    server.start()
    try:
        yield server
    finally:
        server.close()

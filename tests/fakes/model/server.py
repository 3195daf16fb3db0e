"""A scripted fake model behind a real HTTP socket, in the dialects that coding agents speak.

    with FakeModel() as model:
        ...  # an agent with the base URL model.url

`script` says what it does. It keeps each request, so that a test can look at what the agent sent.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from tests.fakes.model import anthropic, completions, gemini, responses
from tests.fakes.model.dialect import Dialect
from tests.fakes.model.script import GARBAGE, NOTHING, Conversation, Fail, Step, next_step

DIALECTS: tuple[Dialect, ...] = (anthropic, responses, gemini, completions)
PATIENCE = 60
"""Seconds for which a slow step waits at most."""


@dataclass(frozen=True)
class Request:
    """A request for an answer, as it came.

    Attributes:
        at: when all of it was there, by the monotonic clock.
    """

    path: str
    headers: Mapping[str, str]
    """Names in lower case."""
    body: Mapping[str, Any]
    conversation: Conversation
    at: float = field(default_factory=time.monotonic)


class FakeModel:
    """A running server on 127.0.0.1.

    Attributes:
        url: base URL without a path.
        requests: those for an answer, in their order; side errands of the agent are among them.
        others: method and path of all other requests, which get 404.
        waiting: set while a slow step waits.
        go: set by a test to let slow steps go on; `hold` has the next ones wait again.
    """

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.others: list[str] = []
        self.waiting = threading.Event()
        self.go = threading.Event()
        self._server = _Server(self)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), daemon=True
        )
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.go.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(PATIENCE)

    def hold(self) -> None:
        """Have slow steps wait again."""
        self.go.clear()
        self.waiting.clear()

    def asked(self) -> list[Request]:
        """The requests that the agent's work made, without its side errands."""
        return [request for request in list(self.requests) if request.conversation.tools]


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, model: FakeModel) -> None:
        self.model = model
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing for an agent that hangs up; what else goes wrong is shown."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def _model(self) -> FakeModel:
        assert isinstance(self.server, _Server)
        return self.server.model

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing: tests look at `FakeModel.requests`."""

    def do_GET(self) -> None:
        self._other()

    def do_HEAD(self) -> None:
        self._other()

    def do_POST(self) -> None:
        payload = self._payload()
        path = self.path.split("?", 1)[0]
        dialect = next((dialect for dialect in DIALECTS if dialect.takes(path)), None)
        if dialect is None:
            self._other()
            return
        body = json.loads(payload)
        conversation = dialect.read(body)
        headers = {name.lower(): value for name, value in self.headers.items()}
        self._model.requests.append(Request(self.path, headers, body, conversation))
        self._answer(dialect, next_step(conversation, payload.decode()), path, body)

    def _answer(self, dialect: Dialect, step: Step, path: str, body: Mapping[str, Any]) -> None:
        if isinstance(step.deed, Fail):
            self._wait(step)
            deed = step.deed
            if deed.status == NOTHING:
                self.close_connection = True
                return
            if deed.status == GARBAGE:
                self._document(200, {"garbage": "<html>no model is here</html>"})
                return
            self._document(deed.status, dialect.failure(deed.status), deed.retry_after)
        elif (document := dialect.whole(step, path, body)) is not None:
            self._wait(step)
            self._document(200, document)
        else:
            self._stream(dialect, step, path, body)

    def _stream(self, dialect: Dialect, step: Step, path: str, body: Mapping[str, Any]) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for number, event in enumerate(dialect.stream(step, path, body)):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(event), event))
            self.wfile.flush()
            if number == 0:
                self._wait(step)
        self.wfile.write(b"0\r\n\r\n")

    def _wait(self, step: Step) -> None:
        if step.slow:
            self._model.waiting.set()
            self._model.go.wait(PATIENCE)

    def _other(self) -> None:
        self._model.others.append(f"{self.command} {self.path}")
        self._document(404, {"error": {"type": "not_found_error", "message": "not here"}})

    def _document(self, status: int, document: Mapping[str, Any], retry_after: str = "") -> None:
        payload = json.dumps(document).encode()
        self.send_response(status)
        if retry_after:
            self.send_header("retry-after", retry_after)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(payload)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(payload)

    def _payload(self) -> bytes:
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            pieces = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                pieces.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(pieces)
        return self.rfile.read(int(self.headers.get("content-length", 0)))

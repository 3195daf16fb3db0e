"""A stand-in for the control plane: a real HTTP server on a real socket that gives recorded answers."""

from __future__ import annotations

import json
import os
import queue
import re
import threading
from collections import defaultdict, deque
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from postroom_a2a.times import format_time
from tests import near
from tests.control.conforming import contract

TOKEN = "s3cret"
ME = {"uid": "a" * 32, "nick": "alice", "kind": "human"}
BOB = {"uid": "b" * 32, "nick": "bob", "kind": "worker"}
DEADLINE = 20.0
JSON = "application/json"
STREAM = re.compile(r"/v1/(stream|events|tasks/[0-9a-f]+/stream)")


@dataclass
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass
class Answer:
    status: int
    body: object
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False


class Standin:
    """Answers each (method, path) with what `answer` queued, the last one for ever."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.token = TOKEN
        self._near: list[Path] = []
        self._answers: dict[tuple[str, str], deque[Answer]] = defaultdict(deque)
        self._held: dict[tuple[str, str], threading.Event] = {}
        self._came = threading.Condition()
        self._closing = threading.Event()
        self._streams: queue.Queue[queue.Queue[bytes | None]] = queue.Queue()
        self.stream_requests: queue.Queue[Request] = queue.Queue()
        self._open: list[queue.Queue[bytes | None]] = []
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        for frames in self._open:
            frames.put(None)
        self.stop_listening()

    def stop_listening(self) -> None:
        for state in self._near:
            near.withdraw(state, self)
        if self._thread.is_alive():
            self._http.shutdown()
            self._http.server_close()
            self._thread.join(DEADLINE)

    def answer(self, call: str, body: object = None, status: int = 200, **more: Any) -> None:
        method, path = call.split(" ")
        made = Answer(status, body, **more)
        if status < 400 and not made.cut and not isinstance(body, str):
            in_org = re.sub(r"^/orgs/[^/]+", "", path)
            made.body = body = _whole(method, in_org, body)
            sent = b"" if body is None else json.dumps(body).encode()
            contract().check(method, in_org, status, JSON, sent)
        self._answers[method, path].append(made)

    def hold(self, method: str, path: str) -> threading.Event:
        """Leave this call without an answer; the event is set when it came."""
        came = threading.Event()
        self._held[method, path] = came
        return came

    def stream(self) -> queue.Queue[bytes | None]:
        """The frames of the next stream that a client opens; None ends it."""
        frames: queue.Queue[bytes | None] = queue.Queue()
        self._open.append(frames)
        self._streams.put(frames)
        return frames

    def wait_for(self, call: str, timeout: float = DEADLINE) -> None:
        """Return when such a call has come."""
        with self._came:
            assert self._came.wait_for(lambda: self.calls(call), timeout)

    def calls(self, call: str) -> list[Request]:
        method, path = call.split(" ")
        return [r for r in self.requests if (r.method, r.path) == (method, path)]

    def announce(self, state: Path, **changes: object) -> Path:
        """Write server.json as a post room does, and offer what is beside it."""
        record = {"url": self.url, "pid": os.getpid(), "token": self.token} | changes
        file = state / "server.json"
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as out:
            json.dump(record, out)
        near.offer(state, self)
        self._near.append(state)
        return file

    def take(self, method: str, path: str) -> Answer:
        answers = self._answers.get((method, path))
        if not answers:
            return Answer(404, problem("not-found", f"nothing recorded for {method} {path}"))
        return answers.popleft() if len(answers) > 1 else answers[0]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        standin = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

            def serve(self) -> None:
                parts = urlsplit(self.path)
                content = self.content()
                request = Request(
                    self.command,
                    parts.path,
                    {k: v[0] for k, v in parse_qs(parts.query).items()},
                    {k.lower(): v for k, v in self.headers.items()},
                    content if self.command == "PUT" else json.loads(content) if content else None,
                )
                with standin._came:
                    standin.requests.append(request)
                    standin._came.notify_all()
                wanted = None if parts.path.endswith("/v1/join") else f"Bearer {standin.token}"
                if request.headers.get("authorization") != wanted:
                    self.reply(Answer(401, problem("unauthorized", "who are you?")))
                elif STREAM.fullmatch(request.path):
                    self.serve_stream(request)
                elif came := standin._held.get((self.command, parts.path)):
                    came.set()
                    standin._closing.wait(DEADLINE)
                    self.close_connection = True
                else:
                    self.reply(standin.take(self.command, parts.path))

            do_GET = do_POST = do_PUT = do_DELETE = serve  # noqa: N815

            def content(self) -> bytes:
                if self.headers.get("transfer-encoding") != "chunked":
                    return self.rfile.read(int(self.headers.get("content-length") or 0))
                pieces = []
                while size := int(self.rfile.readline(), 16):
                    pieces.append(self.rfile.read(size))
                    self.rfile.readline()
                self.rfile.readline()
                return b"".join(pieces)

            def reply(self, answer: Answer) -> None:
                if answer.cut:
                    self.close_connection = True
                    return
                content = b"" if answer.body is None else json.dumps(answer.body).encode()
                if isinstance(answer.body, str):
                    content = answer.body.encode()
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def serve_stream(self, request: Request) -> None:
                standin.stream_requests.put(request)
                frames = standin._streams.get(timeout=DEADLINE)
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("connection", "close")
                self.end_headers()
                self.close_connection = True
                try:
                    while (frame := frames.get(timeout=DEADLINE)) is not None:
                        self.wfile.write(frame)
                        self.wfile.flush()
                except OSError:
                    pass  # the client has gone

        return Handler


def _whole(method: str, path: str, body: object) -> object:
    """`body`, as the only page where it is one of a list."""
    described = contract().operation(method, path) or {"responses": {}}
    shapes = contract().document["components"]["schemas"]
    content = described["responses"].get("200", {}).get("content", {})
    named = content.get(JSON, {}).get("schema", {}).get("$ref", "")
    shape = shapes.get(named.rpartition("/")[2], {})
    if not isinstance(body, dict) or "next" not in shape.get("required", ()):
        return body
    # That of the inbox goes on for ever.
    return {"next": 0 if shape["properties"]["next"].get("type") == "integer" else None, **body}


def problem(code: str, detail: str, remedy: str = "") -> dict[str, object]:
    return {"type": f"urn:postroom:error:{code}", "code": code, "detail": detail, "remedy": remedy}


def frame(kind: str, event_id: object, data: object) -> bytes:
    return f"id: {event_id}\nevent: {kind}\ndata: {json.dumps(data)}\n\n".encode()


def instant(seconds: float = 0.0) -> str:
    """The time so many seconds after the one that all begin with."""
    return format_time(1_700_000_000.0 + seconds)


def listed(agent: dict[str, str], **changes: Any) -> dict[str, Any]:
    about = {"org": "default", "online": True, "seen_at": None, "card": None, "session": None}
    return {**agent, **about, **changes}


def principal(agent: dict[str, str]) -> dict[str, Any]:
    """Who has a key, as `GET /v1/me` says it."""
    about = {"scopes": ["read"], "method": "key", "key": "d" * 32, "expires_at": None}
    return {**agent, "org": "default", **about}


def mail(number: int, text: str, **changes: Any) -> dict[str, Any]:
    """A message from the operator to bob."""
    return {
        "id": f"m{number}",
        "seq": number,
        "from": ME,
        "to": BOB,
        "text": text,
        "parts": [{"text": text}],
        "subject": "",
        "thread": None,
        "state": "accepted",
        "reason": "",
        "expects_reply": True,
        "reply_to": None,
        "sent_at": instant(number),
        "updated_at": instant(number),
        "expires_at": None,
        "answer": None,
        "requeue_of": None,
        "attempts": 1,
        "task": None,
        "redelivered": False,
    } | changes


def from_bob(number: int, text: str, **changes: Any) -> dict[str, Any]:
    return mail(number, text, **({"from": BOB, "to": ME} | changes))


def post(number: int, text: str, sender: dict[str, str] = BOB) -> dict[str, Any]:
    at = instant(number)
    return {
        "seq": number,
        "id": f"p{number}",
        "project": "main",
        "from": sender,
        "text": text,
        "parts": [{"text": text}],
        "subject": "",
        "thread": None,
        "at": at,
    }


TASK = "ab12cd34" + "0" * 24


def task(**changes: Any) -> dict[str, Any]:
    """A task that the operator gave to bob, which nobody has taken."""
    return {
        "id": TASK,
        "context": TASK,
        "thread": TASK,
        "state": "submitted",
        "final": False,
        "detail": "@bob is offline: it waits",
        "worker": BOB,
        "requester": ME,
        "request": "m1",
        "retry_of": "",
        "door": "cli",
        "skill": "",
        "text": "review it",
        "attempt": 0,
        "seq": 0,
        "requested": 1,
        "created_at": instant(),
        "updated_at": instant(),
        "status_text": "",
        "artifacts": [],
    } | changes


def artifact(text: str, name: str = "report") -> dict[str, Any]:
    return {"id": f"a-{name}", "name": name, "text": text, "parts": [{"text": text}]}


def change(seq: int, state: str, text: str = "", **changes: Any) -> dict[str, Any]:
    """An event of that task."""
    return {
        "seq": seq,
        "task": TASK,
        "state": state,
        "attempt": 1,
        "runner": "r1",
        "at": instant(seq),
        "kind": "status",
        "text": text,
        "parts": [{"text": text}] if text else [],
        "artifact": None,
        "final": state in {"completed", "failed", "canceled", "rejected"},
    } | changes


def piece(seq: int, text: str, *, append: bool = False, name: str = "report") -> dict[str, Any]:
    """An event that brings text of an artifact."""
    about = {"id": f"a-{name}", "name": name, "append": append, "last": False}
    return change(seq, "working", text, kind="artifact", artifact=about)


def worker(nick: str = "bob", **changes: Any) -> dict[str, Any]:
    return {
        "uid": BOB["uid"],
        "nick": nick,
        "project": "main",
        "template": "reader",
        "desired": "running",
        "state": "idle",
        "detail": "",
        "sandbox": {"provider": "bubblewrap", "level": "enforced"},
        "last_seen": None,
        "unread": 0,
        "pid": 7,
        "created_at": instant(),
    } | changes


def alert(text: str, **changes: Any) -> dict[str, Any]:
    return {
        "id": 1,
        "at": instant(),
        "first_at": instant(),
        "count": 1,
        "nick": "",
        "who": None,
        "kind": "",
        "text": text,
        "ended": "",
        "ended_at": None,
    } | changes


def status(*workers: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "version": "0.1.0",
        "server": {
            "url": "http://127.0.0.1:1",
            "pid": 1,
            "listen": [],
            "started_at": instant(),
        },
        "org": "default",
        "me": {"uid": ME["uid"], "nick": ME["nick"]},
        "workers": list(workers),
        "deadletters": 0,
        "alerts": [],
    } | changes

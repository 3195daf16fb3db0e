"""Relays that add an API key: A2A's official kit knows of none. As a proxy in front of a post room could do it.

HTTP: everything below the relay's root goes to the agent's address. gRPC: each call of the A2A service goes on with the
key as metadata and with the agent's tenant, which the kit does not send back. Bytes that pass stay as they are, but for
the addresses in a card, which become those of the relays.
"""

from __future__ import annotations

import http.client
import threading
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import urlsplit

import grpc
from a2a.types import a2a_pb2

SERVICE = a2a_pb2.DESCRIPTOR.services_by_name["A2AService"]
HOP = frozenset({"connection", "host", "keep-alive", "transfer-encoding", "content-length"})
PATIENCE = 60.0
STREAMS = 64


class _Relay(BaseHTTPRequestHandler):
    """One connection of the kit."""

    protocol_version = "HTTP/1.1"
    agent: ClassVar[str]
    key: ClassVar[str]
    replaced: ClassVar[dict[bytes, bytes]]
    states_version: ClassVar[bool]

    def _pass(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        body = self.rfile.read(length)
        to = urlsplit(self.agent)
        path = to.path + (self.path if self.path != "/" else "")
        headers = {n: v for n, v in self.headers.items() if n.lower() not in HOP}
        if self.states_version and "/.well-known/" in path:
            headers.setdefault("A2A-Version", "1.0")
        up = http.client.HTTPConnection(to.netloc, timeout=PATIENCE)
        try:
            up.request(self.command, path, body, headers | {"Authorization": f"Bearer {self.key}"})
            self._answer(up.getresponse())
        finally:
            up.close()

    do_GET = do_POST = do_DELETE = do_PUT = do_PATCH = _pass  # noqa: N815 (http.server's names)

    def _answer(self, answer: http.client.HTTPResponse) -> None:
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in HOP | {"date", "server"}:
                self.send_header(name, value)
        if answer.getheader("content-type", "").startswith("text/event-stream"):
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            while piece := answer.read1(65536):
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
            return
        body = answer.read()
        if "/.well-known/" in self.path:
            for there, here in self.replaced.items():
                body = body.replace(there, here)
        if answer.status not in {204, 304}:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (http.server's name)
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: the kit leaves streams in the middle."""


@contextmanager
def http_relay(
    agent: str, key: str, replaced: dict[str, str] | None = None, *, states_version: bool = False
) -> Generator[str]:
    """Relay HTTP to the agent at the URL `agent`; yields the relay's URL.

    Args:
        replaced: further texts to replace in a card.
        states_version: ask for the card with `A2A-Version: 1.0`; the kit leaves the header out there.
    """
    relay = type("Relay", (_Relay,), {"agent": agent.rstrip("/"), "key": key})
    server = _Server(("127.0.0.1", 0), relay)
    url = f"http://127.0.0.1:{server.server_address[1]}"
    texts = {agent.rstrip("/"): url} | (replaced or {})
    relay.states_version = states_version
    relay.replaced = {old.encode(): new.encode() for old, new in texts.items()}
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield url
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def grpc_relay(address: str, tenant: str, key: str) -> Generator[str]:
    """Relay gRPC to `address` (`host:port`); yields the relay's own."""
    channel = grpc.insecure_channel(address)
    methods = {}
    for method in SERVICE.methods:
        request = getattr(a2a_pb2, method.input_type.name)
        path = f"/{SERVICE.full_name}/{method.name}"
        call, handler = channel.unary_unary, grpc.unary_unary_rpc_method_handler
        if method.server_streaming:
            call, handler = channel.unary_stream, grpc.unary_stream_rpc_method_handler
        far = call(path, request_serializer=None, response_deserializer=None)
        relay = partial(
            _streamed if method.server_streaming else _called, far, request, tenant, key
        )
        methods[method.name] = handler(relay)
    server = grpc.server(ThreadPoolExecutor(STREAMS))
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(SERVICE.full_name, methods),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()
        channel.close()


def _begun(far: Any, kind: Any, tenant: str, key: str, asked: bytes, context: Any) -> Any:
    request = kind.FromString(asked)
    request.tenant = tenant
    metadata = [
        (name, value)
        for name, value in context.invocation_metadata()
        if name not in {"user-agent", "authorization"}
    ]
    return far(
        request.SerializeToString(),
        metadata=[*metadata, ("authorization", f"Bearer {key}")],
        timeout=min(context.time_remaining() or PATIENCE, PATIENCE),
    )


def _called(far: Any, kind: Any, tenant: str, key: str, asked: bytes, context: Any) -> bytes:
    try:
        return _begun(far, kind, tenant, key, asked, context)
    except grpc.RpcError as error:
        _refuse(error, context)
        raise


def _streamed(
    far: Any, kind: Any, tenant: str, key: str, asked: bytes, context: Any
) -> Iterator[bytes]:
    events = _begun(far, kind, tenant, key, asked, context)
    context.add_callback(events.cancel)
    try:
        yield from events
    except grpc.RpcError as error:
        _refuse(error, context)


def _refuse(error: Any, context: Any) -> None:
    context.set_trailing_metadata(error.trailing_metadata() or ())
    context.abort(error.code(), error.details())

"""A model server as the outside has it: HTTPS, a streamed answer, and a record of what it was sent."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import trustme

WORDS = ("Hello", " from", " the", " model")


class ModelServer:
    """Answers the Anthropic Messages API by server-sent events.

    Attributes:
        requests: path, headers in small letters and decoded body of each.
    """

    def __init__(self, port: int, ca_file: Path) -> None:
        self.port = port
        self.ca_file = ca_file
        self.requests: list[tuple[str, dict[str, str], Any]] = []


@contextmanager
def model_server(folder: Path, name: str = "localhost") -> Generator[ModelServer]:
    """Serve until the block ends."""
    authority = trustme.CA()
    ca_file = folder / "outside-ca.pem"
    authority.cert_pem.write_to_path(str(ca_file))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(name).configure_cert(context)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            size = int(self.headers.get("content-length") or 0)
            headers = {key.lower(): value for key, value in self.headers.items()}
            found.requests.append((self.path, headers, json.loads(self.rfile.read(size))))
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for event in _events():
                data = f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")

        def log_message(self, *_: Any, **__: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any, **__: Any) -> None:
            pass  # a connection that was cut is what some tests are about

    server = Server(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(
        server.socket, server_side=True, do_handshake_on_connect=False
    )
    found = ModelServer(server.server_port, ca_file)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _events() -> Iterator[dict[str, Any]]:
    usage = {"input_tokens": 3, "output_tokens": 1}
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "fake",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    yield {"type": "message_start", "message": message}
    block = {"type": "text", "text": ""}
    yield {"type": "content_block_start", "index": 0, "content_block": block}
    for word in WORDS:
        delta = {"type": "text_delta", "text": word}
        yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    ended = {"stop_reason": "end_turn", "stop_sequence": None}
    yield {"type": "message_delta", "delta": ended, "usage": {"output_tokens": 4}}
    yield {"type": "message_stop"}

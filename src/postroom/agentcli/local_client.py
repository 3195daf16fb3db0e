"""The client of the local API that `postroom-agent` uses. Standard library only, so that it starts at once."""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from postroom.errors import BusDisconnected, NotRunning, ProtocolViolation, from_problem
from postroom.protocol.intervals import LOCAL_TIMEOUT

CHUNK = 64 * 1024
"""Bytes that are read or sent at a time."""


def call(
    method: str, path: str, body: dict[str, Any] | None = None, *, timeout: float = LOCAL_TIMEOUT
) -> Any:
    """The answer of the sidecar, whose address is in the environment, within `timeout` seconds.

    Raises:
        BusDisconnected: the sidecar does not answer.
        PostroomError: the error that it answered.
    """
    headers = {"content-type": "application/json"} if body is not None else {}
    payload = None if body is None else json.dumps(body).encode()
    with _connected(timeout) as connection:
        connection.request(method, path, payload, headers)
        response = connection.getresponse()
        return _answer(response.status, response.read())


def upload(path: str, content: BinaryIO, media_type: str) -> dict[str, Any]:
    """PUT a content piece by piece; returns the sidecar's answer. Raises as `call`."""
    with _connected() as connection:
        try:
            connection.request("PUT", path, content, {"content-type": media_type})
        except OSError:
            # Refused midway: the answer with the reason may have come before the connection was cut.
            if connection.sock is None:
                raise
        response = connection.getresponse()
        return _answer(response.status, response.read())


def download(path: str) -> Iterator[bytes]:
    """A content as it comes. Raises as `call`, also midway."""
    with _connected() as connection:
        connection.request("GET", path)
        response = connection.getresponse()
        if response.status >= 400:
            _answer(response.status, response.read())
        while data := response.read(CHUNK):
            yield data
        if response.length:
            raise BusDisconnected("the connection broke before the end of the content")


def lines(path: str, body: dict[str, Any], headers: dict[str, str]) -> Iterator[str]:
    """The JSON texts that answer a POST: one, or those of a stream as they come. Raises as `call`."""
    headers = {"content-type": "application/json", **headers}
    with _connected() as connection:
        connection.request("POST", path, json.dumps(body).encode(), headers)
        response = connection.getresponse()
        if response.headers.get_content_type() != "text/event-stream":
            yield json.dumps(_answer(response.status, response.read()))
            return
        for line in response:
            if line.startswith(b"data: "):
                yield line.removeprefix(b"data: ").decode()


@contextmanager
def _connected(timeout: float = LOCAL_TIMEOUT) -> Generator[HTTPConnection]:
    address = urlsplit(os.environ.get("POSTROOM_API", ""))
    if not address.hostname or not address.port:
        raise NotRunning(
            "POSTROOM_API does not say where the sidecar is",
            remedy="run this inside a worker of Postroom",
        )
    # Not urllib: it would go through a proxy that the environment names.
    host, port = address.hostname, address.port
    connection = HTTPConnection(host, port, timeout=timeout, blocksize=CHUNK)
    try:
        yield connection
    except (OSError, HTTPException) as error:
        raise BusDisconnected(f"the sidecar does not answer: {error}") from error
    finally:
        connection.close()


def _answer(status: int, payload: bytes) -> Any:
    try:
        document = json.loads(payload)
    except ValueError as error:
        raise ProtocolViolation("the sidecar's answer is not JSON") from error
    if status >= 400:
        raise from_problem(document if isinstance(document, dict) else {}, status)
    return document

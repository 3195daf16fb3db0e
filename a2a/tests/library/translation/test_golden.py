"""What the TypeScript peers of the wire write is what we write, byte for byte, and we read it."""

from __future__ import annotations

import pytest

from library.translation.golden import COMPLETE, ERRORS, EVENTS, REQUESTS, RESPONSES
from postroom_a2a.binding import frames
from postroom_a2a.ecma_json import dumps
from postroom_a2a.sdk.translation import OPERATIONS, V03, a2a_error, operation_of, rpc_error


@pytest.mark.requirement("a2a-http-versions")
def test_request_is_written_as_it_was_read():
    for name, payload in REQUESTS:
        request = frames.decode_request(payload.encode())
        assert operation_of(request.method) == (OPERATIONS[name], V03)
        read = V03.read_params(OPERATIONS[name], request.params)
        request.params = V03.write_params(OPERATIONS[name], read)
        request.method = V03.method(OPERATIONS[name])
        assert frames.encode_request(request).decode() == payload


@pytest.mark.requirement("a2a-http-versions")
def test_response_is_written_as_it_was_read():
    for name, payload in RESPONSES:
        response = frames.decode_response(payload.encode())
        read = V03.read_result(OPERATIONS[name], response.result)
        written = dumps(V03.write_result(OPERATIONS[name], read))
        assert frames.encode_result(response.id, written).decode() == payload


@pytest.mark.requirement("a2a-http-versions")
def test_event_is_written_as_it_was_read():
    for payload in EVENTS:
        operation = OPERATIONS["SendStreamingMessage"]
        response = frames.decode_response(payload.encode())
        written = dumps(V03.write_result(operation, V03.read_result(operation, response.result)))
        bare = frames.encode_result(response.id, written)
        assert frames.encode_stream_frame(bare).decode() == payload


@pytest.mark.requirement("a2a-http-versions")
def test_error_is_written_as_it_was_read():
    for payload in ERRORS:
        response = frames.decode_response(payload.encode())
        assert response.error is not None
        error = rpc_error(a2a_error(response.error), V03)
        assert frames.encode_error(response.id, error).decode() == payload


def test_end_of_a_stream_is_written_as_it_was_read():
    response = frames.decode_response(COMPLETE.encode())
    assert frames.encode_complete(response.id).decode() == COMPLETE

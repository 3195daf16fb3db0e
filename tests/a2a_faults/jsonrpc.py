"""JSON-RPC over HTTP for any `Operations`, as little as the tests need."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import Any

from postroom_a2a.errors import PostroomError
from postroom_a2a.operations import Call, Operations
from postroom_a2a.rpc import RpcError, read_call, read_json, refusal, result


def application(operations: Operations, running: Any) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] == "GET":
            await plain(
                send, json.dumps({"running": running(), "tasks": len(asyncio.all_tasks())}).encode()
            )
            return
        body = b""
        while True:
            part = await receive()
            body += part.get("body", b"")
            if not part.get("more_body"):
                break
        record = read_json(body)
        method, params = read_call(record)
        headers = {k.decode(): v.decode() for k, v in scope["headers"]}
        call = Call(
            record["id"],
            method,
            params,
            parameters={"A2A-Version": "1.0"},
            caller=headers.get("x-caller", ""),
        )

        async def gone() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        started = False
        try:
            if operations.streams(method):
                async with aclosing(operations.stream(call)) as results:
                    async for each in results:
                        if not started:
                            await send(
                                {
                                    "type": "http.response.start",
                                    "status": 200,
                                    "headers": [(b"content-type", b"text/event-stream")],
                                }
                            )
                            started = True
                        await send(
                            {
                                "type": "http.response.body",
                                "body": b"data: "
                                + json.dumps(result(call.id, json.loads(each))).encode()
                                + b"\n\n",
                                "more_body": True,
                            }
                        )
                await send({"type": "http.response.body", "body": b""})
                return
            answering = asyncio.create_task(operations.answer(call))
            leaving = asyncio.create_task(gone())
            await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
            leaving.cancel()
            if not answering.done():
                answering.cancel()
                return
            answer = result(call.id, json.loads(await answering))
        except RpcError as error:
            answer = refusal(call.id, error)
        except PostroomError as error:
            answer = refusal(call.id, RpcError.of(error))
        if started:
            await send(
                {
                    "type": "http.response.body",
                    "body": b"data: " + json.dumps(answer).encode() + b"\n\n",
                }
            )
            return
        await plain(send, json.dumps(answer).encode())

    return app


async def plain(send: Any, body: bytes) -> None:
    await send(
        {
            "type": "http.response.start",
            "status": 200,
            "headers": [(b"content-type", b"application/json")],
        }
    )
    await send({"type": "http.response.body", "body": body})

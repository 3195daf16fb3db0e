"""The document that describes the API (`control.openapi`)."""

from __future__ import annotations

import asyncio
import json

from fastapi import FastAPI
from fastapi.responses import Response

from postroom.control.principals import anyone
from postroom.control.routing import Routes


def router(app: FastAPI) -> Routes:
    """The route; the document is made of the routes of `app` when it is first asked for."""
    routes = Routes()
    making = asyncio.Lock()
    made: list[bytes] = []

    def make() -> bytes:
        from postroom.control.openapi.document import document

        return json.dumps(document(app), separators=(",", ":")).encode()

    @routes.get("/openapi.json", include_in_schema=False)
    @anyone
    async def openapi() -> Response:
        async with making:
            if not made:
                made.append(await asyncio.to_thread(make))
        return Response(made[0], media_type="application/json")

    return routes

"""The router of the API's modules: FastAPI's, which neither makes models of the answers nor checks them.

The type checker holds a route to the shape that it returns, and every test's client the answer to the document
(`tests.control.conforming`). A model for each answer would cost at every start and at every call, to find what only a
programming error can bring.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter
from fastapi.datastructures import DefaultPlaceholder
from fastapi.dependencies.utils import get_typed_return_annotation
from starlette.responses import Response

from postroom.control.principals import AdmittedRoute

_JSON = dict[str, Any]
"""What FastAPI knows of an answer: it is written in pydantic's core, as it is."""


class Routes(APIRouter):
    """The routes of one kind of resource; each admits its callers first (`control.principals`)."""

    def __init__(self, **how: Any) -> None:
        super().__init__(route_class=AdmittedRoute, **how)

    def add_api_route(self, path: str, endpoint: Callable[..., Any], **how: Any) -> None:
        """Add a route; its return annotation is for `control.openapi`."""
        if isinstance(how.get("response_model"), DefaultPlaceholder):
            hint = get_typed_return_annotation(endpoint)
            plain = hint is None or (isinstance(hint, type) and issubclass(hint, Response))
            how["response_model"] = None if plain else _JSON
        super().add_api_route(path, endpoint, **how)

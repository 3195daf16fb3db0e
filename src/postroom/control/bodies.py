"""Bodies of requests, as pydantic checks them. Answers are plain JSON objects, described where they are made."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

Text = Annotated[str, Field(min_length=1)]
Name = Annotated[str, Field(max_length=70)]


class Body(BaseModel):
    """A request's body; a key that is not known is an error, not a typing mistake that is found later."""

    model_config = ConfigDict(extra="forbid")


class SpawnBody(Body):
    """`POST /v1/workers`."""

    template: Text
    files: dict[str, str] = {}
    name: Name = ""
    project: Name = ""
    sandbox: Name = ""
    set: dict[str, str] = {}


class MessageBody(Body):
    """`POST /v1/messages`; `expires_in` in seconds."""

    to: Text
    text: Text
    expects_reply: bool = True
    expires_in: Annotated[float, Field(gt=0)] | None = None
    key: Annotated[str, Field(max_length=200)] = ""
    reply_to: Annotated[str, Field(max_length=64)] = ""


class PostBody(Body):
    """`POST /v1/projects/{id}/posts`."""

    text: Text
    key: Annotated[str, Field(max_length=200)] = ""


class EventsBody(Body):
    """`POST /v1/workers/{uid}/sdk-events`."""

    events: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=100)]

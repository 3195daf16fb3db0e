"""One command of `postroom a2a`: calls of one server, and what they print."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from postroom.cli.output import print_content, print_json
from postroom.directory.card_signatures import verify_card
from postroom.errors import EnvironmentFault, InvalidInput, NotFound, RequestTimeout
from postroom.gateway.credentials import BoundCredential, Credentials
from postroom.http.exchange import outbound_exchange
from postroom.lines.rows import colour_of
from postroom.lines.text import Cell, block
from postroom.protocol.content import parts_of
from postroom.protocol.tasks import EXIT_CODES
from postroom.settings import DEFAULT_ORG, Settings
from postroom.view.tasks import PIECE
from postroom.view.words import part_lines
from postroom_a2a.http.client import A2AClient
from postroom_a2a.http.client_attempts import Calling, Headers
from postroom_a2a.http.client_cards import Card, check_url
from postroom_a2a.messages import text_of, texts_of
from postroom_a2a.retry import Backoff, RetryPolicy
from postroom_a2a.task_state import INTERRUPTED, TERMINAL, TaskState
from postroom_a2a.tasks import Event, Message, Task
from postroom_a2a.text import one_line

CALL = 60.0
"""Seconds of one call of several."""


def no_headers(_: str) -> Mapping[str, str]:
    """None."""
    return {}


def bound_key(secret: str, header: str, url: str) -> Headers:
    """The header with a key of the environment, for the host of `url` alone."""
    if not secret:
        return no_headers
    parts = urlsplit(check_url(url))
    origin = f"{parts.scheme}://{parts.netloc}"
    bound = BoundCredential.bind("environment", DEFAULT_ORG, origin, secret=secret, header=header)
    name, value = bound.line
    line = {name.decode().lower(): value.decode()}
    place = (parts.scheme, parts.netloc)
    return lambda to: line if (urlsplit(to).scheme, urlsplit(to).netloc) == place else {}


def kept_credential(state: Path, org: str, name: str, url: str) -> Headers:
    """The header of a credential of the post room in that state folder, which need not run.

    Raises:
        NotFound: there is no such credential.
        InvalidInput: it is not for the host of `url`.
    """
    kept, org = Credentials(Settings(state=state).credentials_file), org or DEFAULT_ORG
    if name not in {each.name for each in kept.of(org)}:
        raise NotFound(f"there is no credential {name!r}", remedy="postroom credential list")

    def headers(to: str) -> Mapping[str, str]:
        return kept.for_url(org, name, to)

    if not headers(check_url(url)):
        raise InvalidInput(
            f"the credential {name!r} is not for {one_line(url, 200)}",
            remedy="postroom credential list shows for what each is",
        )
    return headers


def verifier(keys: Path) -> Callable[[Card], Card]:
    """Checks that a card is signed by one of the keys in a file (a JWK set)."""
    try:
        known = json.loads(keys.read_bytes())["keys"]
    except OSError as error:
        raise EnvironmentFault(f"{keys} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"{keys} is no JWK set") from error
    return lambda card: verify_card(card, known)


class Session:
    """The calls of one command.

    Args:
        timeout: seconds for all of it.
        as_json: what comes is printed as JSON, a line for each event.
    """

    def __init__(
        self,
        url: str,
        headers: Headers,
        timeout: float,
        *,
        attempts: int,
        patient: bool,
        as_json: bool = False,
    ) -> None:
        self._url = url
        policy = RetryPolicy(attempts=attempts, patient=patient)
        self._calling = Calling(outbound_exchange(None), headers, policy)
        self._timeout = timeout
        self._as_json = as_json

    async def open(self, verify: Callable[[Card], Card] | None = None) -> A2AClient:
        """A client, by the card."""
        return await A2AClient.open(
            self._url, self._calling, timeout=min(CALL, self._timeout), verify=verify
        )

    async def send(self, message: Message, *, follow: bool, show: bool) -> int:
        """Send a message; returns the exit status.

        Args:
            follow: until the task has ended or asks.
            show: what happens meanwhile, too.
        """
        client = await self.open()
        if follow and client.streams:
            events = client.stream(message, timeout=CALL)
            return await self._followed(client, events, show=show)
        sent = await client.send(message, wait=False, timeout=min(CALL, self._timeout))
        if follow and "task" in sent and state_of(sent["task"]) not in {*TERMINAL, *INTERRUPTED}:
            return await self._followed(client, _polled(client, sent), show=show)
        if follow:
            return self._result(sent)
        self._say(sent)
        return 0

    async def follow(self, task: str) -> int:
        """Show what happens to a task until it has ended or asks; returns the exit status."""
        client = await self.open()
        if client.streams:
            return await self._followed(client, client.subscribe(task, timeout=CALL), show=True)
        first = {"task": await client.get(task, timeout=CALL)}
        return await self._followed(client, _polled(client, first), show=True)

    async def show(self, task: str) -> None:
        """Print a task with its results."""
        found = await (await self.open()).get(task, timeout=self._timeout)
        if self._as_json:
            print_json(found)
            return
        self._say({"task": found})
        said = status_said(found)["text"]
        if artifacts_of(found) or said != one_line(said, 200):  # else the line says it all
            self._contents(found)

    async def page(self, context: str, limit: int) -> dict[str, Any]:
        """A page of tasks."""
        query: dict[str, Any] = {"pageSize": limit} | ({"contextId": context} if context else {})
        return await (await self.open()).list(timeout=self._timeout, **query)

    async def cancel(self, task: str) -> None:
        """Cancel a task."""
        self._say({"task": await (await self.open()).cancel(task, timeout=self._timeout)})

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────────

    async def _followed(
        self, client: A2AClient, events: AsyncGenerator[Event, None], *, show: bool
    ) -> int:
        task, last = "", {}
        try:
            async with asyncio.timeout(self._timeout), aclosing(events) as found:
                async for event in found:
                    last = event
                    held = event.get("task") or next(iter(event.values()), {})
                    task = task or str(held.get("id" if "task" in event else "taskId") or "")
                    if show and self._as_json:
                        click.echo(json.dumps(event))
                    elif show and (line := event_line(event)):
                        click.echo(line, err=True)
        except TimeoutError as error:
            raise RequestTimeout(
                f"no end within {self._timeout:g} s: the task {one_line(task, 64)} goes on",
                remedy=f"postroom a2a stream {self._url} {one_line(task, 64)}",
            ) from error
        if "message" in last or not task:
            return self._result(last, shown=show)
        return self._result({"task": await client.get(task, timeout=CALL)}, shown=show)

    def _result(self, sent: Event, *, shown: bool = False) -> int:
        """Print the end; returns the exit status."""
        if self._as_json:
            click.echo(json.dumps(sent)) if shown else print_json(sent)
        if "message" in sent:
            if not self._as_json:
                print_content(holder_of(sent["message"]), always=True)
            return 0
        task = sent.get("task") or {}
        state, said = state_of(task), status_said(task)
        named = one_line(str(task.get("id", "")), 64)
        if state in INTERRUPTED:
            raise RequestTimeout(
                f"the agent asks, and task {named} waits for the answer: {one_line(said['text'], 300)}",
                remedy=f"postroom a2a send {self._url} TEXT --task {named}",
            )
        if not self._as_json:
            self._contents(task)
            if not shown and state != "completed":
                click.echo(block(f"{state}: ", said["text"]), err=True)
        return EXIT_CODES.get(state, 1)

    def _contents(self, task: Task) -> None:
        found = artifacts_of(task)
        for artifact in found:
            if len(found) > 1:
                click.echo(f"artifact {artifact['name']}:", err=True)
            print_content(artifact, always=True)
        if not found and (said := status_said(task))["parts"]:
            print_content(said)

    def _say(self, sent: Event) -> None:
        if self._as_json:
            print_json(sent)
        elif "message" in sent:
            print_content(holder_of(sent["message"]), always=True)
        else:
            task = sent["task"]
            said = one_line(status_said(task)["text"], 200)
            state = state_of(task) or "in no state of A2A"
            named = one_line(str(task.get("id", "")), 256)
            click.echo(f"{named} {state}{': ' + said if said else ''}")


async def _polled(client: A2AClient, first: Event) -> AsyncGenerator[Event, None]:
    """The task each time that it has changed, at a server without streams, until it has ended or asks."""
    backoff, event = Backoff(1.0, 15.0), first
    yield event
    while state_of(event["task"]) not in {*TERMINAL, *INTERRUPTED}:
        await asyncio.sleep(0.2 + backoff.next())
        task = await client.get(event["task"]["id"], timeout=CALL)
        if task.get("status") != event["task"].get("status"):
            yield {"task": task}
        event = {"task": task}


# ── cards, tasks and events in lines: strangers wrote them, so they are made harmless ──

HEAD = ("ID", "STATE", "CONTEXT", "TASK", "LAST")

Record = Mapping[str, Any]


def state_of(holder: Record) -> str:
    """The state of a task or a status update, as Postroom spells it; "" for none that A2A has."""
    status = holder.get("status")
    try:
        return TaskState.from_a2a(status.get("state") if isinstance(status, Mapping) else None)
    except ValueError:
        return ""


def holder_of(said: Record) -> dict[str, Any]:
    """A message or an artifact as `view.words` shows it."""
    parts = parts_of(said)
    return {"text": text_of({"parts": parts}), "parts": parts}


def status_said(holder: Record) -> dict[str, Any]:
    """What was said with the state."""
    status = holder.get("status")
    message = status.get("message") if isinstance(status, Mapping) else None
    return holder_of(message) if isinstance(message, Mapping) else {"text": "", "parts": []}


def card_lines(card: Record, address: str, binding: str, version: str) -> Iterator[str]:
    """A card, and the interface of it that is called."""
    yield one_line(str(card.get("name", "")), 80)
    yield f"address      {one_line(address, 300)}"
    yield f"speaks       {one_line(binding, 40)}, A2A {one_line(version, 10)}"
    provider = card.get("provider")
    if isinstance(provider, Mapping) and provider.get("organization"):
        yield f"provider     {one_line(str(provider['organization']), 120)}"
    yield f"description  {one_line(str(card.get('description', '')), 300)}"
    able = card.get("capabilities")
    able = able if isinstance(able, Mapping) else {}
    words = {"streaming": "streams", "pushNotifications": "push notifications"}
    can = [word for name, word in words.items() if able.get(name) is True]
    yield f"can          {', '.join(can) or 'answer once'}"
    takes = card.get("defaultInputModes")
    if isinstance(takes, list):
        yield f"takes        {one_line(', '.join(map(str, takes)), 300)}"
    for skill in _objects(card.get("skills")):
        name = one_line(str(skill.get("id", "")), 80)
        yield f"skill        {name}: {one_line(str(skill.get('description', '')), 300)}"
    schemes = card.get("securitySchemes")
    if isinstance(schemes, Mapping) and schemes:
        yield f"asks for     {one_line(', '.join(map(str, schemes)), 300)}"


def task_row(task: Record) -> list[Cell]:
    """A task in a list."""
    state = state_of(task)
    said = status_said(task)["text"]
    return [
        Cell(one_line(str(task.get("id", "")), 40)),
        Cell(state or "-", colour_of(state)),
        Cell(one_line(str(task.get("contextId", "")), 40)),
        Cell(one_line(asked(task), 80)),
        Cell(one_line(said, 80)),
    ]


def asked(task: Record) -> str:
    """The text of the request, where the server shows it."""
    first = next(iter(_objects(task.get("history"))), {})
    return text_of({"parts": parts_of(first)})


def event_line(event: Record) -> str:
    """A change in a line; "" for one that shows nothing new."""
    if isinstance(held := event.get("statusUpdate") or event.get("task"), Mapping):
        state, said = state_of(held), status_said(held)
        label = click.style(state, fg=colour_of(state)) if state else ""
        rest = [said["text"], *part_lines(said)]
        return block(f"{label}: " if any(rest) else label, "\n".join(filter(None, rest)))
    if isinstance(update := event.get("artifactUpdate"), Mapping):
        artifact = update.get("artifact")
        artifact = artifact if isinstance(artifact, Mapping) else {}
        name = one_line(str(artifact.get("name") or artifact.get("artifactId") or ""), 60)
        more = " (more)" if update.get("append") else ""
        said = holder_of(artifact)
        return (
            f"artifact {name}{more}: {one_line(' '.join([said['text'], *part_lines(said)]), PIECE)}"
        )
    return ""


def artifacts_of(task: Record) -> list[dict[str, Any]]:
    """The artifacts of a task, each as `view.words` shows it, with a name."""
    return [
        {
            "name": one_line(str(each.get("name") or each.get("artifactId") or "")),
            "text": "".join(texts_of({"parts": parts_of(each)})),
            "parts": parts_of(each),
        }
        for each in _objects(task.get("artifacts"))
    ]


def _objects(value: object) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []

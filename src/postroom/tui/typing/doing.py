"""Carries out what was typed: sends a text to where the person is, and does commands."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from postroom.client.belonging import refuse_agents
from postroom.errors import InvalidInput, PinRequired, PinWrong, PostroomError
from postroom.lines.workers import notes, spawned
from postroom.protocol.patterns import added as added_pattern
from postroom.tui.dialogs import with_pin
from postroom.tui.news import CHANNEL, Chosen, NeedChosen, Said, Target, trouble
from postroom.tui.sidebar import marked
from postroom.tui.sidebar.pane import Sidebar
from postroom.tui.talk.pane import Talk
from postroom.tui.typing.commands import BY_NAME, Command, Plain, help_lines, parse
from postroom.tui.worker import acts, merging
from postroom.view.tasks import accepted_line, short
from postroom.view.words import address
from postroom.view.workers import WAIT, ended
from postroom.view.workspaces import counted
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from postroom.client.http import AsyncClient
    from postroom.protocol.shapes import Listed, Policy
    from postroom.protocol.template_needs import Needs
    from postroom.templates.reading import Bundle
    from postroom.tui.here import Here
    from postroom.tui.port import ScreenPort
    from postroom.tui.typing.commands import Command

NAMED = 30
"""Agents that `/who` names."""


class Doing:
    """What the lines of one screen do.

    Args:
        here: the post room, where it is one of this machine.
    """

    def __init__(self, app: ScreenPort, here: Here | None) -> None:
        self._app, self._here = app, here
        self._doing: dict[str, Callable[[Command], Awaitable[None]]] = {
            "msg": self._msg,
            "delegate": self._delegate,
            "spawn": self._spawn,
            "approve": self._decide,
            "deny": self._decide,
            "answer": self._answer,
            "diff": self._act,
            "apply": self._apply,
            "policy": self._policy,
            "alerts": self._alerts,
            "tree": self._tree,
            "interrupt": self._interrupt,
            "stop": self._act,
            "restart": self._act,
            "remove": self._act,
            "task": self._task,
            "cancel": self._cancel,
            "join": self._join,
            "file": self._file,
            "search": self._search,
            "who": self._who,
            "log": self._log,
            "help": self._help,
            "quit": self._quit,
        }

    def check(self, text: str) -> Command | Plain:
        """What a line means.

        Raises:
            InvalidInput: it cannot be done as it stands.
        """
        meant = parse(text)
        if isinstance(meant, Plain) and self._app.target is None:
            raise InvalidInput(
                "not sent: nobody is chosen yet",
                remedy="choose a project or an agent on the left (Esc, then 1), or: /msg @nick TEXT",
            )
        return meant

    async def do(self, meant: Command | Plain) -> None:
        """Do it; what came of it is said.

        Raises:
            PostroomError: it was not done.
        """
        if isinstance(meant, Plain):
            await self._send(meant.text)
        else:
            await self._doing[meant.verb.name](meant)

    # ── helpers ──────────────────────────────────────────────────────────────────────────────────

    @property
    def _talk(self) -> Talk:
        return self._app.screen_stack[0].query_one(Talk)

    @property
    def _sidebar(self) -> Sidebar:
        return self._app.screen_stack[0].query_one(Sidebar)

    def _say(self, text: str, *, bad: bool = False) -> None:
        self._app.post_message(Said(text, bad=bad))

    async def _agent(self, command: Command) -> Target:
        """The agent that a command names, else the one that is looked at."""
        nick = command["nick"].removeprefix("@")
        if not nick:
            target = self._app.target
            if target is None or target.is_project:
                raise InvalidInput(f"/{command.verb.name}: which agent?", remedy=command.verb.line)
            return target
        room = self._app.room
        known = (room.worker(nick) or room.agent(nick)) if room is not None else None
        if known is not None:
            return Target(known["nick"], known["uid"])
        found = await self._app.client.agent(nick)
        return Target(found["nick"], found["uid"])

    # ── saying something ─────────────────────────────────────────────────────────────────────────

    async def _send(self, text: str, parts: Sequence[Mapping[str, Any]] = ()) -> None:
        if note := await self._talk.send(text, parts):
            self._say(note)

    async def _msg(self, command: Command) -> None:
        target = await self._agent(command)
        if target == self._app.target:
            await self._send(command["text"])
            return
        sent = await self._app.client.send(f"@{target.name}", command["text"])
        # The conversation opens, so that the text is seen, and its answer.
        self._app.post_message(Chosen(target))
        note = one_line(sent.get("note", ""), 200)
        self._say(note or f"sent to {one_line(str(target))}")

    async def _delegate(self, command: Command) -> None:
        skill, text = command["skill"], command["text"]
        to = ""
        if command["nick"] or not skill:
            to = f"@{(await self._agent(command)).name}"
        task = await self._app.client.delegate(text, to=to, skill=skill)
        self._say(f"{address(task['worker'])} has the task {short(task['id'])}")

    async def _file(self, command: Command) -> None:
        if self._app.target is None:
            raise InvalidInput("not sent: nobody is chosen yet", remedy="/join #project")
        path = Path(command["path"]).expanduser()
        part = await self._upload(path)
        await self._send(command["text"], [part])

    async def _upload(self, path: Path) -> dict[str, Any]:
        from postroom.client.files import media_type_for

        kind = media_type_for(str(path), "")
        try:
            # To open what is no plain file may wait.
            with await asyncio.to_thread(lambda: path.open("rb")) as file:
                url = await self._app.client.put_blob(file, kind)
        except OSError as error:
            raise InvalidInput(
                f"{one_line(str(path), 200)!r} cannot be read: {error.strerror}"
            ) from error
        return {"url": url, "mediaType": kind, "filename": path.name}

    # ── what is asked ────────────────────────────────────────────────────────────────────────────

    async def _decide(self, command: Command) -> None:
        ref = command["id"]
        if not ref:
            self._app.post_message(NeedChosen())
            return
        refuse_agents("approve")
        client = self._app.client
        decision = "allowed" if command.verb.name == "approve" else "denied"
        # Of several agents that named theirs so, the one that waits is meant.
        waits = self._app.room.approval(ref) if self._app.room is not None else None
        worker = waits["worker"]["uid"] if waits is not None else ""
        asked = await client.approval(ref, worker=worker)
        try:
            done = await client.control(
                asked["worker"]["uid"],
                asked["id"],
                decision,
                reason=command["reason"],
                channel=CHANNEL,
            )
        except (PinRequired, PinWrong) as error:
            self._app.post_message(trouble(error))
            self._app.post_message(NeedChosen(asked["id"]))
            return
        self._say(f"{done['state']} {short(done['id'])} of {address(done['worker'])}")

    async def _answer(self, command: Command) -> None:
        ref, text = command["id"], command["text"]
        task = await self._app.client.answer_task(ref, text)
        self._say(f"{short(task['id'])} answered")

    # ── workers ──────────────────────────────────────────────────────────────────────────────────

    async def _act(self, command: Command) -> None:
        name, several = command.verb.name, self._marked(command)
        if several:
            marked.act(self._app, name, several, self._sidebar.unmark)
            return
        target = await self._agent(command)
        getattr(acts, "open_diff" if name == "diff" else name)(self._app, target)

    def _marked(self, command: Command) -> list[Target]:
        """The marked workers, where a command that takes several names none."""
        able = command.verb.name in marked.ACTS and not command["nick"]
        return self._sidebar.marked() if able else []

    async def _apply(self, command: Command) -> None:
        ref = command["id"] or f"@{(await self._agent(command)).uid}"
        (merging.undo if command["undo"] else merging.merge)(self._app, ref)

    async def _policy(self, command: Command) -> None:
        from postroom.tui.typing.help import policy_page

        target = await self._agent(command)
        client = self._app.client
        added = [added_pattern(each) for each in command.many.get("allow", ())]
        removed = command.many.get("remove", ())
        if added or removed:
            refuse_agents("policy")

        async def changed(pin: str) -> Policy:
            for pattern in removed:
                await client.forget_rule(target.uid, pattern, pin)
            for pattern in added:
                await client.allow_always(target.uid, pattern, pin)
            return await client.policy(target.uid)

        self._app.push_screen(policy_page(str(target), await with_pin(self._app, changed)))

    async def _alerts(self, command: Command) -> None:
        from postroom.tui.typing.help import alerts_page

        client = self._app.client
        if not command["clear"]:
            self._app.push_screen(alerts_page(await client.alerts()))
            return
        if command["clear"] != "clear":
            raise InvalidInput("/alerts: what does that mean?", remedy=command.verb.line)
        count = await client.clear_alerts(command["id"])
        self._say(f"cleared {counted(count, 'alert')}")

    async def _tree(self, command: Command) -> None:
        if command["id"]:
            acts.open_tree_of(self._app, command["id"])
        else:
            acts.open_tree(self._app, await self._agent(command))

    async def _interrupt(self, command: Command) -> None:
        acts.interrupt(self._app, await self._agent(command), command["reason"])

    async def _spawn(self, command: Command) -> None:
        if not command["template"]:
            await self._offer()
            return
        self._say(f"starting {one_line(command['template'], 60)} ...")
        here = self._app.target
        project = here.name if here is not None and here.is_project else ""
        said, target, bad = await with_pin(
            self._app, lambda pin: spawn(self._app.client, command, project, pin)
        )
        self._say(said, bad=bad)
        self._app.choose(target)
        if command["task"]:
            self._app.look("worker")  # where it is seen at it

    async def _offer(self) -> None:
        from postroom.tui.here import offer

        if self._here is None or self._app.room is None:
            raise InvalidInput("/spawn: what template?", remedy=BY_NAME["spawn"].line)
        await offer(self._app, self._here, self._app.room, asked=True)

    # ── tasks ────────────────────────────────────────────────────────────────────────────────────

    async def _task(self, command: Command) -> None:
        acts.open_task(self._app, command["id"])

    async def _cancel(self, command: Command) -> None:
        ref, reason = command["id"], command["reason"]
        task = await self._app.client.cancel_task(ref, reason=reason)
        self._say(f"{short(task['id'])} {one_line(task['state'])}")

    # ── the screen ───────────────────────────────────────────────────────────────────────────────

    async def _join(self, command: Command) -> None:
        from postroom.protocol.ids import check_name

        name = check_name(command["project"].removeprefix("#"), "project")
        known = await self._app.client.projects()
        self._app.post_message(Chosen(Target(name)))
        if name not in known:
            self._say(f"there is no #{name} yet: your first post makes it")

    async def _search(self, command: Command) -> None:
        self._talk.open_search(command["words"])

    async def _who(self, _: Command) -> None:
        agents: list[Listed] = await self._app.client.agents()
        names = [
            f"@{one_line(each['nick'])} {'online' if each['online'] else 'offline'}"
            for each in agents[:NAMED]
        ]
        more = f" and {len(agents) - NAMED} more" if len(agents) > NAMED else ""
        self._say(", ".join(names) + more if names else "nobody is there")

    async def _log(self, _: Command) -> None:
        await self._app.run_action("log")

    async def _help(self, command: Command) -> None:
        name = command["command"]
        if name:
            self._say("\n".join(f"{line}\n  {about}" for line, about in help_lines(name)))
        else:
            await self._app.run_action("help")

    async def _quit(self, _: Command) -> None:
        await self._app.run_action("quit")


async def spawn(
    client: AsyncClient, command: Command, project: str, pin: str = ""
) -> tuple[str, Target, bool]:
    """Start a worker; returns what there is to say, the worker, and whether it has ended at once.

    Args:
        project: that it joins where the command names none.
        pin: of the person, "" before they were asked.

    Raises:
        PostroomError: as `postroom spawn`.
    """
    from postroom.templates import keys, reading, spawning

    said: list[str] = []
    remote = not client.transport.server.pid
    folder = spawning.folder_of(command["workspace"], command["mode"], remote=remote)
    # What reads files and looks for programs may wait.
    path, bundle, needed, values = await asyncio.to_thread(_template, command, remote, said.append)
    if needed.keys:
        known = await client.credentials()
        choice = keys.choose(needed, values, known, lambda *_: bool(command["store"]))
        values |= choice.values
        said.append(await keys.keep(client, choice))
    await asyncio.to_thread(reading.check, bundle, values, command["sandbox"])
    worker = await spawning.spawn(
        client,
        bundle,
        command["name"].removeprefix("@"),
        project=(command["project"] or project).removeprefix("#"),
        overrides=values,
        sandbox=command["sandbox"],
        isolation=command["isolation"],
        path=str(path.absolute()),
        workspace=folder,
        mode=command["mode"],
        autonomous=bool(command["autonomous"]),
        branches=command.many.get("branches", ()),
        wait=WAIT,
        pin=pin,
    )
    said += [spawned(worker), *notes(worker)]
    error = ended(worker)
    if error is None and command["task"]:
        try:
            given = await spawning.give(client, worker, command["task"])
            said += [accepted_line(given)] if given else []
        except (
            PostroomError
        ) as refused:  # the worker is there, so the line is not to be typed again
            error = refused
    if error is not None:
        said += _lines(error)
    text = "\n".join(click.unstyle(line) for line in said if line)
    return text, Target(worker["nick"], worker["uid"]), error is not None


def _template(
    command: Command, remote: bool, say: Callable[[str], None]
) -> tuple[Path, Bundle, Needs, dict[str, str]]:
    """The template that a command names, what it needs of this machine, and the values for that.

    Args:
        remote: the post room runs on another machine.
    """
    from postroom.templates import reading, spawning

    path = reading.located(_home(command["template"]), say)
    bundle = reading.read(path)
    values = reading.overrides(command.many.get("set", ()), bundle.text)
    needed = spawning.needs_here(bundle.text, values)
    values |= spawning.program_of(needed, values, command["sandbox"], remote=remote)
    return path, bundle, needed, values


def _lines(error: PostroomError) -> list[str]:
    return [*(f"    | {one_line(line)}" for line in error.details), error.message, error.remedy]


def _home(word: str) -> str:
    """A file's path below the home folder, as a shell would have it."""
    return str(Path(word).expanduser()) if word.startswith("~") else word

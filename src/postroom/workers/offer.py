"""What `postroom` offers a person in a repository where no worker works yet: an agent, its key, the folder, how far.

The dialog of the screen and the questions of the line mode show one `Offer`; what a person takes becomes the words of
one `postroom spawn`. Programs are looked for where `spawn` looks; keys only in the environment and among those that the
post room keeps.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from postroom.client.locate import command
from postroom.errors import InvalidInput, PostroomError
from postroom.protocol.template import parse_template
from postroom.sandbox.never import never_shown
from postroom.templates import keys
from postroom.templates.programs import Machine, find, values_of
from postroom.templates.shipped import listed
from postroom.templates.spawning import needs_here
from postroom.workers.workspaces.layout import find as repository
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.protocol.shapes import Credential, Worker
    from postroom.protocol.template_needs import Needs

ASK, AUTONOMOUS = "ask me", "autonomous in the sandbox"
HOW = {
    ASK: "It may read. Each command and each change waits for your yes.",
    AUTONOMOUS: "It changes and runs what it wants, and asks for nothing: its sandbox is the wall.",
}
"""How far an agent goes by itself, and what that means; the first is the usual."""


@dataclass(frozen=True, slots=True)
class Agent:
    """A coding agent that is installed here.

    Attributes:
        template: its name for `postroom spawn`.
        nick: which it gets.
        title: as people call it, with its version.
        host: what its template lets it out to: where its model is; "" for nothing.
        key: what there is of its key, for people.
        stores: the key is in the environment, and the post room is to keep it.
        add: the command that stores its key, "" for one that has a key, or needs none.
    """

    template: str
    nick: str
    title: str
    host: str
    key: str
    stores: bool = False
    add: str = ""

    @property
    def ready(self) -> bool:
        """Whether it can be started."""
        return not self.add


@dataclass(frozen=True, slots=True)
class Offer:
    """What there is to choose from.

    Attributes:
        agents: those that are ready first.
        folder: to work on, None for none here.
        why: no folder of here is offered, or no agent; "" for an offer.
    """

    agents: tuple[Agent, ...] = ()
    folder: Path | None = None
    why: str = ""


def offer(
    agents: Iterable[Agent],
    place: tuple[Path | None, str],
    workers: Sequence[Worker],
    *,
    asked: bool = False,
) -> Offer:
    """What a person is offered; a folder of None for nothing. Pure.

    Args:
        agents: that are installed.
        place: as `place_of`.
        workers: of the post room.
        asked: the person wants it; else there is nothing, and no reason, for who has workers already.
    """
    quiet = bool(workers) and not asked
    taken = {worker["nick"] for worker in workers}
    named = (replace(agent, nick=_free(agent.nick, taken)) for agent in agents)
    found = tuple(sorted(named, key=lambda agent: not agent.ready))
    folder, why = place
    if folder is None:
        return Offer(found, None, "" if quiet else why)
    if not asked and any(works_in(worker, folder) for worker in workers):
        return Offer(found)
    if not found:
        why = "" if quiet else "no coding agent is installed here: postroom doctor names some"
        return Offer((), None, why)
    return Offer(found, folder)


def _free(nick: str, taken: Collection[str]) -> str:
    numbered = (f"{nick}-{number}" for number in count(2))
    return nick if nick not in taken else next(each for each in numbered if each not in taken)


def works_in(worker: Worker, folder: Path) -> bool:
    """Whether a worker works in a repository already, or in a part of it."""
    workspace = worker.get("workspace")
    return workspace is not None and Path(workspace["path"]).is_relative_to(folder)


def means(agent: Agent, how: str) -> str:
    """What an agent can do and reach that is started so."""
    where = f"{agent.host} and the agents here" if agent.host else "the agents here"
    return (
        f"{HOW[how]} It reaches {where}, nothing else of the network, sees no other files, keys or"
        f" programs of yours, and changes a copy: what it did comes back as the branch postroom/{agent.nick}."
    )


def words(agent: Agent, folder: str, how: str, task: str) -> list[str]:
    """What follows `postroom spawn`, or `/spawn`."""
    return [
        *(agent.template, "--workspace", folder),
        *(["--store-key"] if agent.stores else []),
        *(["--autonomous"] if how == AUTONOMOUS else []),
        *(["--task", task] if task.strip() else []),
    ]


# ── what is here ──


def look(
    known: Sequence[Credential], workers: Sequence[Worker], state: Path, *, asked: bool = False
) -> Offer:
    """What is offered to who runs this process, in its folder.

    Args:
        known: the credentials that the post room keeps.
        workers: of the post room.
        state: its folder.
        asked: as in `offer`.
    """
    machine = Machine.here()
    place = place_of(machine.folder, machine.home, state)
    found = installed(known, machine, state) if place[0] else []
    return offer(found, place, workers, asked=asked)


def place_of(folder: Path, home: Path | None, state: Path) -> tuple[Path | None, str]:
    """The repository that `folder` lies in, or why no worker is offered there.

    Args:
        home: of the person, None for one without.
        state: the state folder of the post room.
    """
    here = folder.resolve()
    if here == Path(here.anchor):
        return None, _advice("this is the root of the machine")
    if home is not None and home.resolve().is_relative_to(here):
        return None, _advice("this is your home folder")
    try:
        found = repository(here)
    except (InvalidInput, OSError) as error:
        return None, _advice(error.message if isinstance(error, PostroomError) else str(error))
    if found is None:
        return None, _advice("this folder is no git repository")
    if (foreign := found.foreign()) is not None:
        return None, _advice(f"{foreign} belongs to another user")
    if home is not None and home.resolve().is_relative_to(found.top):
        return None, _advice(f"the repository is your home folder, {found.top}")
    if reason := never_shown(found.top, (state,), holding=False):
        return None, _advice(f"no worker gets {found.top}: {reason}")
    return found.top, ""


def _advice(why: str) -> str:
    return f"no worker is offered here: {one_line(why, 300)}"


def installed(known: Sequence[Credential], machine: Machine, state: Path) -> list[Agent]:
    """The coding agents of this machine for which Postroom brings a template."""
    found = []
    for each in listed():
        values: dict[str, str] = {}
        try:
            needed = needs_here(each.text, values, machine.env)
            program = find(needed.program, machine)
        except PostroomError:
            continue
        template = parse_template(each.text, values | values_of(program))
        title = f"{template.description.partition(':')[0]} {program.version}".strip()
        host = " and ".join(map(keys.place, template.egress))
        key, stores, add = _key(needed, known, machine.env)
        add = command(state, add.removeprefix("postroom ")) if add else ""
        found.append(Agent(each.name, template.name, title, host, key, stores, add))
    return found


def _key(
    needed: Needs, known: Sequence[Credential], env: Mapping[str, str]
) -> tuple[str, bool, str]:
    if not needed.keys:
        return "it needs none", False, ""
    if (stored := keys.stored(needed, known)) is not None:
        return f"the credential {stored[1]!r} of this post room", False, ""
    if (form := keys.in_environment(needed, env)) is not None:
        said = f"{form.variable} of this shell; it is kept here, and only the gateway sends it"
        return said, True, ""
    named = " or ".join(form.variable for form in needed.keys)
    return f"none here, and no {named} in this shell", False, keys.add_command(needed.keys[0], env)

"""`postroom spawn`, and what `postroom --no-tui` asks in a repository where no worker works yet."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from postroom.cli.deciding import pin_of
from postroom.cli.declaring import answers, parameter
from postroom.cli.options import (
    chosen_login,
    connect,
    pin_file_option,
    state_folder,
    verbose_option,
)
from postroom.cli.output import print_json
from postroom.protocol.template import LEVELS
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from postroom.cli.starting import Choice
    from postroom.protocol.template import Template
    from postroom.workers.offer import Offer


def _templates(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[Any]:
    """What Postroom brings, and files."""
    from click.shell_completion import CompletionItem

    from postroom.templates.shipped import names

    found = [CompletionItem(name) for name in names() if name.startswith(incomplete)]
    return found or [CompletionItem(incomplete, type="file")]


@click.command("spawn")
@answers(
    parameter("template NAME-OR-FILE", shell_complete=_templates),
    "--project -p P: Project that the worker joins.",
    "--name -n NICK: Nick instead of the template's.",
    "--set settings KEY=VALUE...: Value for a key of the template's [overrides].",
    "--sandbox NAME: Sandbox instead of the template's: auto, bubblewrap, netns, landlock, seatbelt,"
    " opensandbox or none.",
    parameter(
        "--isolation: Accept a wall that is no stronger than this; without it one that is enforced is demanded.",
        type=click.Choice(LEVELS),
    ),
    "--workspace -w DIR: Folder of this machine to work on, instead of an empty one.",
    "--as mode: How: on a branch of its own (the default in a git repository), on a copy, or in DIR itself.",
    "--branches PATTERN: Further branches of DIR that it sees as person/NAME, such as 'release/*'.",
    "--autonomous: Have its agent ask for nothing but what the template denies; the sandbox is the wall.",
    "--store-key: Keep the model's key of the environment as a credential, without asking.",
    "--task TEXT: Its first task, given once it is there.",
    "--wait: With --task: show how it goes, then its result.",
    pin_file_option,
    "--detach -d: Do not wait until its agent has started.",
    verbose_option,
    of="workers.spawn",
)
def command(
    template: str,
    project: str,
    name: str,
    task: str,
    wait: bool,
    settings: tuple[str, ...],
    sandbox: str,
    isolation: str | None,
    workspace: str,
    mode: str | None,
    branches: tuple[str, ...],
    autonomous: bool,
    store_key: bool,
    pin_file: str | None,
    detach: bool,
    verbose: bool,
    as_json: bool,
) -> int:
    """Start a worker from a template; starts a post room if none is running.

    NAME-OR-FILE is a template that Postroom brings, such as claude-code (`postroom templates`), or a file: a
    word with a / or the ending .toml is always a file. It waits until the agent has started or ended, for 5
    seconds at most.

    A template that names a program and a key gets the place of the program on this machine, and the key that the
    post room keeps for its model.

    A --set value that begins with ./ or ../ becomes an absolute path, and so does what follows an @ (as
    in --set folder=@src), and a value of which the template makes a folder to read; every other value is
    taken as it stands.

    With --workspace DIR the worker works on a folder, and `postroom diff` shows what it changed: by default on a
    branch postroom/NICK of the git repository, or on a copy of any other folder.

    With --task TEXT it has that task at once; JSON has it as `given`. With --wait it is followed to its end, as by
    `postroom delegate --wait`.
    """
    if wait and (as_json or not task.strip()):
        raise click.UsageError("--wait needs --task, and shows it as lines")
    from postroom.cli.following import follow
    from postroom.cli.starting import details, keep, report
    from postroom.client.wire import done
    from postroom.lines.workers import spawned
    from postroom.templates.reading import check, located, overrides, read
    from postroom.templates.spawning import folder_of, give, spawn
    from postroom.view.tasks import accepted_line, short
    from postroom.view.workers import WAIT

    folder = folder_of(workspace, mode, remote=chosen_login() is not None)
    path = located(template, lambda said: click.echo(said, err=True))
    bundle = read(path)
    values = overrides(settings, bundle.text)
    key = _fill(bundle.text, values, sandbox, store=store_key)
    values |= key.values
    _ensure_running(check(bundle, values, sandbox), key)
    with connect() as client, details(verbose):
        keep(client, key)
        worker = pin_of(pin_file).used(
            lambda known: done(
                spawn(
                    client.inner,
                    bundle,
                    name.removeprefix("@"),
                    project=project.removeprefix("#"),
                    overrides=values,
                    sandbox=sandbox,
                    isolation=isolation or "",
                    path=str(path.absolute()),
                    workspace=folder,
                    mode=mode or "",
                    branches=branches,
                    autonomous=autonomous,
                    wait=0.0 if detach else WAIT,
                    pin=known,
                )
            )
        )
        if not as_json:
            click.echo(spawned(worker))
        given = done(give(client.inner, worker, task))
        if as_json:
            print_json({**worker, "given": given} if task else worker)
        report(worker)
        if given is not None and wait:
            return follow(client, given, timeout=None, as_json=False)
    if given is not None and not as_json:
        click.echo(f"{accepted_line(given)}: postroom task watch {short(given['id'])}")
    return 0


def _fill(text: str, values: dict[str, str], sandbox: str, *, store: bool) -> Choice:
    """Put the place of the template's program into `values`; returns the key that it needs.

    Raises:
        NotFound: the program is not installed.
        InvalidInput: there is no key, or the program cannot be looked for.
    """
    from postroom.cli.starting import choose, known
    from postroom.templates.spawning import needs_here, program_of

    needed = needs_here(text, values)
    values |= program_of(needed, values, sandbox, remote=chosen_login() is not None)
    return choose(needed, values, known(), store=store) if needed.keys else _no_key()


def _no_key() -> Choice:
    from postroom.cli.starting import Choice

    return Choice()


def _ensure_running(template: Template, key: Choice) -> None:
    from postroom.client.locate import locate
    from postroom.errors import NotRunning

    if chosen_login() is not None:
        return  # one of another machine, which is not ours to start
    state = state_folder()
    try:
        locate(state)
    except NotRunning:
        from postroom.cli.detach import begin

        _check_credentials(template, state, key)
        begin(state)


def _check_credentials(template: Template, state: Path, key: Choice) -> None:
    """Check the credentials that the template names; without a running post room, against its file.

    The key that is to be stored once it runs is left out.
    """
    names = tuple(name for name in template.credentials if not key.form or name != key.name)
    if not names:
        return
    from postroom.cli.starting import kept
    from postroom.gateway.credentials import check_credentials

    check_credentials(replace(template, credentials=names), kept(state))


def spawned() -> int | None:
    """Offer a worker, and start the one that the person wants; None if nothing is offered or wanted.

    Returns the exit status of what it is told to do first.
    """
    from postroom.workers.offer import look

    with connect() as client:
        status = client.status()
        if "pid" not in status["server"]:
            return None  # who does not operate starts no workers
        found = look(client.credentials(), status["workers"], state_folder())
    if found.folder is None:
        if found.why:
            click.echo(found.why, err=True)
        return None
    words = answered(found)
    if not words:
        return None

    result = command.main(words, "spawn", standalone_mode=False, parent=click.get_current_context())
    return result if isinstance(result, int) else 0


def answered(found: Offer) -> Sequence[str]:
    """What follows `postroom spawn`, as the person answers; nothing if they want none."""
    from postroom.workers.offer import HOW, means, words

    ready = [agent for agent in found.agents if agent.ready]
    for agent in found.agents:
        click.echo(f"{one_line(agent.title, 60)}: key: {one_line(agent.key, 300)}", err=True)
        if agent.add:
            click.echo(f"  to store one: {one_line(agent.add, 500)}", err=True)
    if not ready:
        click.echo("with a key stored, postroom offers a worker here", err=True)
        return []
    if not click.confirm(
        f"No worker works on {found.folder} yet. Start one?", default=True, err=True
    ):
        return []
    agent = ready[_chosen("agent", [one_line(each.title, 60) for each in ready])]
    folder = click.prompt("works on", default=str(found.folder), err=True, type=FOLDER)
    ways = [f"{way}: {one_line(means(agent, way), 500)}" for way in HOW]
    how = list(HOW)[_chosen("how far", ways)]
    task = click.prompt("first task, or nothing", default="", show_default=False, err=True)
    line = words(agent, folder, how, task)
    return [*line, "--wait"] if task.strip() else line


class _Folder(click.ParamType):
    """A folder, as people write it; absolute then."""

    name = "folder"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check it."""
        place = Path(value)
        if value.startswith("~"):
            place = place.expanduser()
        if not place.is_dir():
            self.fail(f"{one_line(value, 200)} is not a folder", param, ctx)
        return str(place.absolute())


FOLDER = _Folder()


def _chosen(what: str, names: Sequence[str]) -> int:
    """The place of one of several, the first by default; no question where there is one."""
    if len(names) == 1:
        return 0
    for number, name in enumerate(names, 1):
        click.echo(f"  {number} {name}", err=True)
    number = click.prompt(what, default=1, err=True, type=click.IntRange(1, len(names)))
    return number - 1

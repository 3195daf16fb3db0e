"""`postroom doctor`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from postroom.cli.declaring import answers
from postroom.cli.options import chosen_login, state_folder
from postroom.cli.output import print_json
from postroom.errors import EnvironmentFault, PostroomError, exit_code
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.templates.doctor import Finding

CONNECT = "connect"
"""In place of a template: the clients of `postroom connect`."""

COLOURS = {"ok": "green", "note": "yellow", "missing": "red"}


@click.command("doctor")
@answers("template [TEMPLATE]", "--verbose -v: Say all that is known of each finding.")
def command(template: str, verbose: bool, as_json: bool) -> int:
    """Say what is missing on this machine, and what mends it; needs no post room.

    With a TEMPLATE, a name or a file, it looks at that one; else at all that Postroom brings. `postroom doctor connect`
    looks at the clients of `postroom connect`: files, trust, settings, the last hook that was heard.

    It exits with 10 if the machine lacks something, or what was named does.
    """
    found = _connected() if template == CONNECT else _findings(template)
    well = all(finding.state != "missing" for finding in found)
    if as_json:
        print_json({"ok": well, "findings": [asdict(finding) for finding in found]})
    else:
        for finding in found:
            _print(finding, verbose=verbose)
    return 0 if well else exit_code(EnvironmentFault(""))


def _connected() -> list[Finding]:
    from postroom.cli.commands.connect import with_post_room
    from postroom.connect import places
    from postroom.connect.doctor import findings
    from postroom.templates.programs import Machine

    try:
        chosen = with_post_room(places.read_settings())
    except PostroomError:
        chosen = None  # no login of a person
    return findings(Machine.here(), chosen)


def _findings(template: str) -> list[Finding]:
    from postroom.cli.starting import known
    from postroom.settings.sources import load
    from postroom.templates.doctor import machine_findings, template_findings
    from postroom.templates.programs import Machine
    from postroom.templates.reading import located, read
    from postroom.templates.shipped import listed
    from postroom.templates.spawning import needs_here

    texts = {} if template else {each.name: each.text for each in listed()}
    if template:
        texts[template] = read(located(template, lambda said: click.echo(said, err=True))).text
    here = Machine.here()
    credentials = known()
    found = [] if chosen_login() is not None else machine_findings(load(state_folder()))
    for name, text in texts.items():
        found += template_findings(
            name, needs_here(text, {}, here.env), credentials, here, wanted=bool(template)
        )
    return found


def _print(finding: Finding, *, verbose: bool) -> None:
    state = click.style(finding.state.ljust(8), fg=COLOURS[finding.state])
    what = f"{finding.about}: {finding.what}" if finding.about != "machine" else finding.what
    click.echo(f"{state}{one_line(what)}: {one_line(finding.detail)}")
    if finding.remedy and finding.state != "ok":
        click.echo(f"        try: {one_line(finding.remedy)}")
    for line in finding.more if verbose else ():
        click.echo(f"        {one_line(line)}")

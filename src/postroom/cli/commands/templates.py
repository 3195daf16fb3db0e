"""`postroom templates`: the templates that Postroom brings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from postroom.cli.declaring import Answer, answers
from postroom.cli.output import print_table
from postroom.lines.text import Cell
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.templates.shipped import Shipped

EPILOG = """\b
Start one:      postroom spawn claude-code
Change one:     postroom templates show claude-code > mine.toml
                postroom spawn ./mine.toml
"""


@click.group("templates", invoke_without_command=True, epilog=EPILOG)
@answers()
def command() -> Answer:
    """List the templates of coding agents, and whether their programs are installed here."""
    from postroom.templates.shipped import listed

    found = [_entry(template) for template in listed()]
    rows = [
        [
            Cell(entry["name"]),
            _place(entry),
            Cell(entry["adapter"]),
            Cell(entry["tested"]) if entry["tested"] else Cell("untested", "yellow"),
        ]
        for entry in found
    ]
    head = ("NAME", "PROGRAM", "ADAPTER", "TESTED WITH")
    return {"templates": found}, lambda: print_table(head, rows)


@command.command("show")
@answers("name")
def show(name: str, as_json: bool) -> Answer:
    """Print the template NAME, to be saved and changed."""
    from postroom.templates.shipped import shipped

    template = shipped(name)
    if as_json:
        return {**_entry(template), "text": template.text}, ()
    click.echo(
        f"# To change it, save it and spawn the file:\n"
        f"#   postroom templates show {name} > {name}.toml\n"
        f"#   postroom spawn ./{name}.toml\n#"
    )
    click.echo(template.text, nl=False)
    return None


def _entry(template: Shipped) -> dict[str, Any]:
    from postroom.errors import PostroomError
    from postroom.protocol.template import template_adapter
    from postroom.templates.programs import Machine, find

    needs = template.needs
    entry: dict[str, Any] = {
        "name": template.name,
        "adapter": template_adapter(template.text),
        "program": needs.program,
        "path": "",
        "version": "",
        "missing": "",
        "install": needs.install,
        "tested": needs.tested,
        "keys": [key.name for key in needs.keys],
    }
    try:
        program = find(needs.program, Machine.here(), needs.install)
    except PostroomError as error:
        return entry | {"missing": error.message}
    return entry | {"path": str(program.real), "version": program.version}


def _place(entry: dict[str, Any]) -> Cell:
    if not entry["path"]:
        return Cell(f"not installed: {entry['install']}", "yellow")
    return Cell(one_line(f"{entry['path']} {entry['version']}".strip()))

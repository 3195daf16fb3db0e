"""`postroom audit`."""

from __future__ import annotations

import json

import click

from postroom.cli.options import connect, json_option, state_option

NEWEST = 100
"""Records that are shown where neither a number nor a time is given."""


@click.command("audit")
@click.option("--follow", "-f", is_flag=True, help="Go on with what comes.")
@click.option("--worker", metavar="@NICK", default="", help="Those of one worker (nick or uid).")
@click.option("--task", metavar="ID", default="", help="About a task, or caused by it.")
@click.option("--since", metavar="TIME", default="", help="10m, 2h, 3d, or an RFC 3339 time.")
@click.option(
    "--all",
    "plumbing",
    is_flag=True,
    help="Also beats, pulls, acknowledgements and answers of the bus.",
)
@click.option("--denied", is_flag=True, help="What was refused alone.")
@click.option(
    "--limit",
    "-n",
    type=click.IntRange(0, 10_000),
    metavar="N",
    help=f"The last N; 0 for all. Without it {NEWEST}, or with --since all.",
)
@json_option
@state_option()
def command(
    follow: bool,
    worker: str,
    task: str,
    since: str,
    plumbing: bool,
    denied: bool,
    limit: int | None,
    as_json: bool,
) -> None:
    """Show what passed the gateway, or was refused: bus messages and HTTP requests, oldest first.

    What carries them is counted and not shown (--all shows it). With --json each record is one line of JSON,
    and the count goes to standard error.
    """
    if limit is None:
        limit = 0 if since else NEWEST
    with connect() as client:
        records = client.audit(
            worker=worker,
            task=task,
            since=since,
            denied=denied,
            plumbing=plumbing,
            limit=limit,
            follow=follow,
        )
        from postroom.cli.audit.lines import Lines

        lines, shown = Lines(client), 0
        for record in records:
            if (omitted := record.get("omitted")) is not None:
                click.echo(f"… {int(omitted)} lines of plumbing not shown (--all)", err=as_json)
                continue
            shown += 1
            click.echo(json.dumps(record, ensure_ascii=True) if as_json else lines.line(record))
        if not shown and not as_json:
            click.echo("nothing was denied" if denied else "no records")

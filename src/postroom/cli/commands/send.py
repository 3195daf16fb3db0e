"""`postroom send` and `receipt`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from postroom.cli.arguments import check_project, new_option
from postroom.cli.content import Given, content_options, said, talk_options, upload_parts
from postroom.cli.declaring import Answer, answers, parameter
from postroom.cli.options import connect
from postroom.cli.waiting import await_milestone, receipt_line, wait_options
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.protocol.shapes import Milestone

EXAMPLES = """\b
Examples:
  postroom send @helper "is the build green?" --wait answered
  postroom send @helper "please review" --file may.pdf --subject "May"
  git diff | postroom send @helper -
"""


@click.command("send", epilog=EXAMPLES)
@answers(
    "to",
    "text [TEXT]...",
    wait_options("Wait until the message has come so far; `answered` prints the answer."),
    "--no-reply: Say that no reply is expected.",
    "--reply-to ID: Message that this one answers.",
    parameter("--expires S: Dead if not seen by then.", type=click.FloatRange(0, min_open=True)),
    "--key K: Idempotency key: once only per key.",
    content_options,
    talk_options,
    new_option,
)
def command(
    to: str,
    text: tuple[str, ...],
    milestone: Milestone | None,
    timeout: float,
    no_reply: bool,
    reply_to: str,
    expires: float | None,
    key: str,
    new: bool,
    as_json: bool,
    **content: Any,
) -> Answer:
    """Send TEXT to @NICK, a uid or a '#PROJECT'; without TEXT, or for `-`, standard input is sent.

    With --file or --data no TEXT is needed. What the agent does not take is refused before anything is sent.

    Prints the message's id and state. With --wait answered the answer alone goes to standard output. The
    exit status is 7 if the message is dead and 9 if the time is over; then it is still on its way.
    """
    to_project = to.startswith("#")
    if to_project and (milestone or no_reply or reply_to or expires):
        raise click.UsageError("a project's feed has no receipts, replies or expiry")
    if no_reply and milestone == "answered":
        raise click.UsageError("--no-reply and --wait answered contradict each other")
    given = Given(**content)
    words = said(text, given)
    with connect() as client, client.transport.within(timeout):
        if to_project:
            check_project(client, to, new=new)
        about: dict[str, Any] = {"parts": upload_parts(client, given), "key": key, **given.talk}
        if to_project:
            post = client.post(to, words, **about)
            return post, f"{one_line(post['id'])} accepted"
        mail = client.send(
            to, words, expects_reply=not no_reply, expires_in=expires, reply_to=reply_to, **about
        )
        if note := one_line(mail.get("note", "")):
            click.echo(note, err=True)
        if milestone is None:
            return mail, receipt_line(mail)
        if not as_json:
            click.echo(receipt_line(mail), err=milestone == "answered")
        await_milestone(client, mail, milestone, timeout, as_json=as_json)
    return None


@click.command("receipt")
@answers(
    "message",
    wait_options("Wait until the message has come so far; `answered` prints the answer."),
)
def receipt(message: str, milestone: Milestone | None, timeout: float, as_json: bool) -> Answer:
    """Show how far a message has come, or wait for it; MESSAGE is its id, or 4 or more digits of it."""
    with connect() as client, client.transport.within(timeout):
        mail = client.message(message)
        if milestone is not None:
            await_milestone(client, mail, milestone, timeout, as_json=as_json)
            return None
    return mail, receipt_line(mail)

"""The text that a command sends: its words, or what is piped in."""

from __future__ import annotations

import sys

import click


def text_argument(words: tuple[str, ...]) -> str:
    """The words, or all of standard input where there are none on a pipe, or only `-`.

    Raises:
        UsageError: there is no text.
        MessageTooLarge: standard input holds more than a message can.
    """
    if words and words != ("-",):
        text = " ".join(words)
    elif sys.stdin is None or (not words and sys.stdin.isatty()):
        raise click.UsageError("Missing argument 'TEXT' (or pipe the text in).")
    else:
        text = _read_input()
    if not text.strip():
        raise click.UsageError("the text is empty")
    return text


def _read_input() -> str:
    from postroom.errors import MessageTooLarge
    from postroom.protocol.envelope import MAX_ENVELOPE_BYTES

    content = sys.stdin.buffer.read(MAX_ENVELOPE_BYTES + 1)
    if len(content) > MAX_ENVELOPE_BYTES:
        raise MessageTooLarge(
            f"the text is over the limit of {MAX_ENVELOPE_BYTES} bytes",
            remedy="put what is large into a file and name it",
        )
    return content.decode(errors="replace").rstrip("\n")

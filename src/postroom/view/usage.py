"""What coding agents have used, as people read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from postroom.protocol.shapes import Usage

NOTHING: Usage = {"input_tokens": 0, "output_tokens": 0, "cost": 0.0}

_UNITS = ((10**9, "G"), (10**6, "M"), (10**3, "k"))


def amount(count: int) -> str:
    """A number of tokens in few characters: `950`, `12.3k`, `4.6M`."""
    for unit, letter in _UNITS:
        if count >= unit:
            return f"{count / unit:.1f}{letter}"
    return str(count)


def dollars(cost: float) -> str:
    """US dollars; a cost below a cent is not shown as nothing."""
    return f"${cost:,.2f}" if cost >= 0.01 or cost <= 0 else "<$0.01"


def usage_cell(used: Usage) -> str:
    """Tokens and cost in a cell of a table, `-` where nothing was used."""
    tokens = used["input_tokens"] + used["output_tokens"]
    words = [amount(tokens)] if tokens else []
    return " ".join([*words, *([dollars(used["cost"])] if used["cost"] else [])]) or "-"


def usage_line(used: Usage) -> str:
    """One line, "" where nothing was used."""
    tokens_in, tokens_out = used["input_tokens"], used["output_tokens"]
    if not (tokens_in or tokens_out or used["cost"]):
        return ""
    cost = f", {dollars(used['cost'])}" if used["cost"] else ""
    return f"used {tokens_in:,} tokens in, {tokens_out:,} out{cost}"

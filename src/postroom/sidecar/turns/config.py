"""What the template says of the turns of a coding agent, as the sidecar reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from postroom.errors import InvalidInput
from postroom.protocol.approvals import DEFAULTS
from postroom.protocol.template import STALL_AFTER, McpServer


@dataclass(frozen=True, slots=True)
class TurnConfig:
    """The keys of `protocol.template.Template` with the same names; `budget_usd` is a number, 0 for no bound.

    Attributes:
        rules: patterns that people have added to `auto_approve`.
        autonomy: what people have set, by task (`protocol.autonomy`).
    """

    servers: tuple[McpServer, ...] = ()
    instructions: bool = True
    auto_approve: tuple[str, ...] = ()
    auto_deny: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    autonomous: bool = False
    autonomy: Mapping[str, str] = field(default_factory=dict, hash=False)
    approval_timeout: float = 0.0
    approval_default: str = DEFAULTS[0]
    stall_after: float = STALL_AFTER
    turn_limit: float = 0.0
    budget_tokens: int = 0
    budget_usd: float = 0.0

    @classmethod
    def parse(cls, record: object) -> Self:
        """The configuration in a decoded JSON document; raises InvalidInput, ValueError or TypeError."""
        if not record:
            return cls()
        if not isinstance(record, dict):
            raise InvalidInput("what the sidecar is told of turns is not an object")
        default = str(record.get("approval_default") or DEFAULTS[0])
        if default not in DEFAULTS:
            raise InvalidInput(f"there is no default {default!r} of approvals")
        return cls(
            servers=tuple(_server(each) for each in record.get("servers") or ()),
            instructions=record.get("instructions", True) is True,
            auto_approve=tuple(map(str, record.get("auto_approve") or ())),
            auto_deny=tuple(map(str, record.get("auto_deny") or ())),
            rules=tuple(map(str, record.get("rules") or ())),
            autonomous=record.get("autonomous") is True,
            autonomy={
                str(task): str(word) for task, word in (record.get("autonomy") or {}).items()
            },
            approval_timeout=float(record.get("approval_timeout") or 0),
            approval_default=default,
            stall_after=float(record.get("stall_after", STALL_AFTER)),
            turn_limit=float(record.get("turn_limit") or 0),
            budget_tokens=int(record.get("budget_tokens") or 0),
            budget_usd=float(record.get("budget_usd") or 0),
        )


def _server(record: Mapping[str, Any]) -> McpServer:
    return McpServer(
        name=str(record["name"]),
        command=tuple(map(str, record.get("command") or ())),
        url=str(record.get("url") or ""),
        env={str(name): str(value) for name, value in (record.get("env") or {}).items()},
        credential=str(record.get("credential") or ""),
    )

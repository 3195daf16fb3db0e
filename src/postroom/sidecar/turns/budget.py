"""What a coding agent has used, and the bound that its template sets. Survives restarts of everything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from postroom.sidecar.turns.state import StateFile


@dataclass(slots=True)
class Used:
    """Tokens and dollars. Input tokens have the cached ones in them, output tokens those of reasoning."""

    tokens: int = 0
    cost: float = 0.0


class Budget:
    """Adds up an agent's usage.

    Args:
        file: keeps the sum.
        tokens, dollars: the bounds, 0 for none.
    """

    def __init__(self, file: StateFile, tokens: int = 0, dollars: float = 0.0) -> None:
        self._file = file
        self._tokens, self._dollars = tokens, dollars
        kept = file.read()
        self.used = Used(int(_number(kept.get("tokens"))), _number(kept.get("cost")))

    def add(self, usage: Mapping[str, Any]) -> None:
        """Count a `usage` event; raises StateUnwritable, with the sum counted all the same."""
        self.used.tokens += int(_number(usage.get("input_tokens")))
        self.used.tokens += int(_number(usage.get("output_tokens")))
        self.used.cost += _number(usage.get("cost"))
        self._file.write({"tokens": self.used.tokens, "cost": self.used.cost})

    @property
    def spent(self) -> str:
        """Why no further turn may begin; "" while the bounds are not reached."""
        if self._tokens and self.used.tokens >= self._tokens:
            return f"the budget is spent: {self.used.tokens} of {self._tokens} tokens"
        if self._dollars and self.used.cost >= self._dollars:
            return f"the budget is spent: {self.used.cost:.2f} of {self._dollars:.2f} USD"
        return ""


def _number(value: object) -> float:
    """A usage figure as the agent says it: anything; what is no number counts as nothing."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        return 0
    return value if isfinite(value) else 0

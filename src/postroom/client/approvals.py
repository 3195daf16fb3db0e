"""Calls about approvals, interrupts and PINs (docs/api.md)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from postroom.client.calls import Calls, given, name_of
from postroom.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping

    from postroom.protocol.shapes import Approval, Interrupt, Pin, Policy

APPROVAL_REF = re.compile(r"[0-9a-f]{4,64}")
"""An approval's id, or a beginning from which the server can find it."""


def approval_ref(ref: str) -> str:
    """An approval's id, or its beginning, as a path segment.

    Raises:
        InvalidInput: it is malformed.
    """
    if APPROVAL_REF.fullmatch(ref) is None:
        raise InvalidInput(
            f"{ref!r} is not the id of an approval: 4 to 64 of the digits 0-9 and a-f",
            remedy="postroom approvals",
        )
    return ref


class ApprovalCalls(Calls):
    """The calls about what agents ask before they act."""

    def approvals(
        self, *, state: str = "pending", worker: str = "", limit: int = 50, before: int = 0
    ) -> list[Approval]:
        """The newest approvals, newest first: those that are pending, or with the state `all` all of them."""
        query = {"state": state, "limit": limit} | given(worker=worker, before=before or None)
        return self._get("/v1/approvals", query)["approvals"]

    def approval(self, ref: str, *, worker: str = "") -> Approval:
        """The approval of that id, or of an id that begins so; of one worker if it is given."""
        return self._get(f"/v1/approvals/{approval_ref(ref)}", given(worker=worker) or None)

    def control(
        self,
        worker: str,
        approval: str,
        decision: str,
        *,
        input: Mapping[str, Any] | None = None,  # noqa: A002 (the field's own word)
        reason: str = "",
        channel: str = "api",
        pin: str = "",
    ) -> Approval:
        """Answer an approval; it is on disk, and was the first answer, when this returns.

        Args:
            decision: `allowed`, `denied` or `edited`, the last one with `input`.
            channel: `cli`, `attach`, `chat`, `screen` or `api`.
            pin: of the caller, if they have set one.

        Raises:
            Conflict: another answer was first, or it has expired or was withdrawn; the error says which.
            PinRequired, PinWrong, PinPaused: the PIN is missing, or wrong.
        """
        body: dict[str, Any] = {
            "type": "control_response",
            "id": approval_ref(approval),
            "decision": decision,
            "channel": channel,
        }
        body |= given(reason=reason, pin=pin) | ({} if input is None else {"input": dict(input)})
        return self._post(f"/v1/workers/{name_of(worker)}/control", body)["approval"]

    def interrupt(self, worker: str, *, reason: str = "", channel: str = "api") -> Interrupt:
        """Have a worker's agent end its turn; that is on disk when this returns."""
        body = {"type": "interrupt", "channel": channel} | given(reason=reason)
        path = f"/v1/workers/{name_of(worker)}/control"
        # Not repeatable: a second one might end the next turn.
        return self._post(path, body)["interrupt"]

    def policy(self, worker: str) -> Policy:
        """What a worker's agent may do without asking."""
        return self._get(f"/v1/workers/{name_of(worker)}/policy")

    def allow_always(
        self, worker: str, pattern: str, pin: str = "", *, channel: str = "api"
    ) -> Policy:
        """Have a worker's agent ask no more for what a pattern names, and allow what waits of that.

        Args:
            pattern: as templates have them (`protocol.patterns`); without effect where it is added already.
            channel: as `control` has it.
            pin: of the caller, if they have set one.

        Raises:
            InvalidInput: it is no pattern, or would allow every tool or every command.
            Conflict: too many are added, or the worker asks nobody.
            PinRequired, PinWrong, PinPaused: the PIN is missing, or wrong.
        """
        return self._policy("POST", worker, {"pattern": pattern, "channel": channel}, pin)

    def set_autonomy(
        self, worker: str, autonomy: str, *, task: str = "", channel: str = "api", pin: str = ""
    ) -> Policy:
        """Set how much a worker's agent does unasked: `ask`, `edits` or `all`; what waits is answered by that.

        Args:
            task: only in the turns for that task, until it ends.
            channel: as `control` has it.
            pin: of the caller, if they have set one.

        Raises:
            NotFound: the worker has no such task.
            Conflict: the task has ended, or the worker asks nobody.
            PinRequired, PinWrong, PinPaused: the PIN is missing, or wrong.
        """
        body = {"autonomy": autonomy, "channel": channel} | given(task=task)
        return self._policy("POST", worker, body, pin)

    def forget_rule(self, worker: str, pattern: str, pin: str = "") -> Policy:
        """Have a worker's agent ask again for what an added pattern names; without effect where it is not added.

        Raises:
            PinRequired, PinWrong, PinPaused: as `allow_always`.
        """
        return self._policy("DELETE", worker, {"pattern": pattern}, pin)

    def _policy(self, method: str, worker: str, body: dict[str, str], pin: str) -> Policy:
        body |= given(pin=pin)
        path = f"/v1/workers/{name_of(worker)}/policy"
        # A repeated try of a wrong PIN would count twice.
        return self.transport.call(method, path, json=body, repeatable=not pin)

    def pin(self) -> Pin:
        """Whether the caller has a PIN."""
        return self._get("/v1/pin")

    def set_pin(self, pin: str, old: str = "") -> Pin:
        """Set or replace the caller's PIN, or remove it with ""; `old` is the one before."""
        return self.transport.call("PUT", "/v1/pin", json={"pin": pin} | given(old=old))

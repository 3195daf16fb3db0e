"""The dialog about an approval: exactly what is to be allowed, and each answer by one key."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from textual import work
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Input, Static, TextArea

from postroom.client.answering import decided, freed
from postroom.client.belonging import refuse_agents
from postroom.errors import Conflict, InvalidInput, NotFound, PostroomError
from postroom.lines.approvals import asked_rows, explained, refused
from postroom.lines.inputs import draft_of, visible
from postroom.lines.text import shortened
from postroom.protocol.approvals import Decision
from postroom.protocol.patterns import added, approves, suggest
from postroom.tui.dialogs import with_pin
from postroom.tui.needs.dialog import Key, Keys, Move, NeedDialog, Phase, expires_in, whole
from postroom.tui.news import CHANNEL
from postroom.tui.rowlists import RowsView
from postroom.view.approvals import ending
from postroom.view.needs import line_of
from postroom.view.words import address

if TYPE_CHECKING:
    from postroom.client.http import AsyncClient
    from postroom.protocol.shapes import Approval, Task
    from postroom.view.needs import Need

_ASK = (
    Key("y", "allow", "allow"),
    Key("d", "deny", "deny"),
    Key("e", "edit", "edit"),
    Key("a", "always", "always"),
    Key("A", "all in this task", "all"),
    Key("t", "task", "task"),
    Key("esc", "later", "back"),
    Key("]", "next", "following"),
    Key("[", "prev", "previous"),
)


_ALL = """\
Until this task ends it asks for nothing that its template does not deny; then it asks again by itself.
What it can reach is what its sandbox lets it reach."""


class ApprovalDialog(NeedDialog):
    """Asks a person about one approval."""

    DEFAULT_CSS = """
    ApprovalDialog #edited { height: 10; }
    ApprovalDialog.-narrow #edited { height: 6; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "allow", "allow"),
        Binding("d", "deny", "deny"),
        Binding("e", "edit", "edit"),
        Binding("a", "always", "always"),
        Binding("A", "all", "all until its task ends"),
        Binding("enter", "send_all", "allow all", show=False),
        Binding("ctrl+s", "send_edited", "allow as edited"),
    ]
    PHASES: ClassVar[dict[str, frozenset[Phase]]] = NeedDialog.PHASES | {
        **dict.fromkeys(("allow", "deny", "edit", "always", "all"), frozenset({Phase.ASK})),
        "send_all": frozenset({Phase.ALL}),
        "send_edited": frozenset({Phase.EDIT}),
        "send_line": frozenset({Phase.DENY, Phase.ALWAYS}),
    }

    BY_LETTERS = True

    def __init__(
        self, need: Need, place: Callable[[], tuple[int, int]], *, by_itself: bool
    ) -> None:
        super().__init__(need, place, by_itself=by_itself)
        self._asked: Approval | None = None

    def more(self) -> Iterable[Widget]:
        """The lines to type in, and the keys of each phase."""
        yield Input(
            placeholder="why? (enter for no reason)",
            id="reason",
            classes="phase -deny",
            compact=True,
        )
        yield TextArea(id="edited", classes="phase -edit", tab_behavior="focus", compact=True)
        yield Input(id="pattern", classes="phase -always", compact=True)
        yield Static(id="explained", classes="phase -always", markup=False)
        yield Static(_ALL, classes="phase -all", markup=False)
        yield Keys(_ASK, classes="phase -ask")
        back = Key("esc", "back", "back")
        for phase, key in (
            (Phase.DENY, Key("enter", "deny", "send_line")),
            (Phase.EDIT, Key("ctrl-s", "allow this", "send_edited")),
            (Phase.ALWAYS, Key("enter", "allow always", "send_line")),
            (Phase.ALL, Key("enter", "allow all", "send_all")),
        ):
            yield Keys((key, back), classes=f"phase {phase.value}")

    def on_mount(self) -> None:
        """No cursor blinks."""
        for line in self.query(Input):
            line.cursor_blink = False
        self.query_one(TextArea).cursor_blink = False

    # ── reading ──

    async def fetched(self, client: AsyncClient) -> tuple[Approval, Task | None]:
        """See `NeedDialog`: with the task for which it is asked."""
        asked = await client.approval(self.need.id, worker=self.need.worker)
        try:
            return asked, await client.task(asked["task"]) if asked["task"] else None
        except NotFound:
            return asked, None

    def take(self, found: tuple[Approval, Task | None]) -> None:
        """See `NeedDialog`."""
        asked, task = found
        if self._asked is None:
            self._show(asked, task)
        if asked["state"] != Decision.PENDING:
            self.over(ending(asked))

    def _show(self, asked: Approval, task: Task | None) -> None:
        self._asked = asked
        rows = list(asked_rows(asked, time.time()))
        self.query_one("#key-edit").display = asked.get("editable", True)
        self.query_one("#key-always").disabled = not suggest(asked)
        self.query_one("#key-all").disabled = not asked["task"]
        self.show_rows(rows, lambda: expires_in(self.need, asked["default"]), task)

    def who_asks(self) -> str:
        """See `NeedDialog`."""
        tool = visible(str(self.need.record["tool"])) if self.need.record else "a tool"
        return f"{super().who_asks()} to use {shortened(tool, 40)}"

    # ── keys ──

    def action_allow(self) -> None:
        """Allow it as it stands."""
        self._answer(Decision.ALLOWED)

    def action_deny(self) -> None:
        """Ask for a reason."""
        self._type("#reason", Phase.DENY)

    def action_edit(self) -> None:
        """Have the command or the file's text edited (`lines.inputs.Draft`)."""
        if self._asked is None or not self._asked.get("editable", True):
            return
        area = self.query_one(TextArea)
        area.load_text(draft_of(self._asked["input"]).text)
        self.enter(Phase.EDIT)
        area.focus()

    def action_always(self) -> None:
        """Propose a pattern."""
        if self._asked is None:
            return
        if pattern := suggest(self._asked):
            self.query_one("#pattern", Input).value = pattern
            self._type("#pattern", Phase.ALWAYS)
        else:
            self.say(refused(self._asked), "bad")

    def action_all(self) -> None:
        """Say what that means, and wait for Enter: the key stands beside that of `always`."""
        if self._asked is None:
            return
        if self._asked["task"]:
            self.say("")
            self.enter(Phase.ALL)
        else:
            self.say("not for a task: it was asked in the turn for a message", "bad")

    @work(exclusive=True, group="answer")
    async def action_send_all(self) -> None:
        """Allow this, and all that is asked until its task ends."""
        asked = self._asked
        if asked is None:
            return
        self.enter(Phase.BUSY)
        self.say("…")
        client = self.port.client

        async def send(pin: str) -> str:
            refuse_agents("autonomy")
            return await freed(
                client, asked["worker"]["uid"], asked["task"], channel=CHANNEL, pin=pin
            )

        try:
            said = await with_pin(self.port, send)
        except PostroomError as error:
            self.back(whole(error))
        else:
            self.done(f"{said}: {address(asked['worker'])}")

    def _type(self, line: str, phase: Phase) -> None:
        self.say("")
        self.enter(phase)
        self.query_one(line).focus()

    def action_back(self) -> None:
        """Back to the question, or leave it for later."""
        if self.phase in (Phase.DENY, Phase.EDIT, Phase.ALWAYS, Phase.ALL):
            self.back()
        else:
            super().action_back()

    def back(self, said: str = "") -> None:
        """To the question; `said` is an error."""
        self.enter(Phase.ASK)
        self.say(said, "bad")
        self.query_one(RowsView).focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Say what the pattern will allow."""
        if event.input.id == "pattern" and self._asked is not None:
            said = _explained(event.value, self._asked)
            self.query_one("#explained", Static).update(said)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """The line is done."""
        event.stop()
        self.action_send_line()

    def action_send_line(self) -> None:
        """Deny with that reason, or write that pattern."""
        if self.phase is Phase.DENY:
            self._answer(Decision.DENIED, reason=self.query_one("#reason", Input).value.strip())
        elif self.phase is Phase.ALWAYS:
            try:
                pattern = added(self.query_one("#pattern", Input).value)
            except InvalidInput as error:
                self.say(whole(error), "bad")
                return
            self._answer(Decision.ALLOWED, always=pattern)

    def action_send_edited(self) -> None:
        """Allow what was edited; what did not change is allowed as it was."""
        if self._asked is None:
            return
        try:
            draft = draft_of(self._asked["input"])
            given = draft.into(self._asked["input"], self.query_one(TextArea).text)
        except InvalidInput as error:
            self.say(whole(error), "bad")
            return
        if given == self._asked["input"]:
            self._answer(Decision.ALLOWED)
        else:
            self._answer(Decision.EDITED, given=given)

    # ── answering ──

    @work(exclusive=True, group="answer")
    async def _answer(
        self,
        decision: Decision,
        *,
        reason: str = "",
        given: Mapping[str, Any] | None = None,
        always: str = "",
    ) -> None:
        asked = self._asked
        if asked is None:
            return
        self.enter(Phase.BUSY)
        self.say("…")
        client, used = self.port.client, [""]

        async def send(pin: str) -> str:
            refuse_agents("approve")
            used[0] = pin
            return await decided(
                client,
                asked["worker"]["uid"],
                asked["id"],
                decision.value,
                reason,
                given,
                pin=pin,
                channel=CHANNEL,
            )

        try:
            said = await with_pin(self.port, send)
        except Conflict:
            await self._too_late(asked)
        except PostroomError as error:
            self.back(whole(error))
        else:
            if always:
                await self._keep(asked, always, used[0])
            else:
                self.done(f"{said}: {line_of(self.need)}")

    async def _too_late(self, asked: Approval) -> None:
        """Say who was first."""
        client = self.port.client
        uid, request = asked["worker"]["uid"], asked["id"]
        try:
            now = await client.approval(request, worker=uid)
        except PostroomError as error:
            self.over(f"too late: {error.message}", "bad")
        else:
            self.over(f"your answer came too late: {ending(now)}", "bad")

    async def _keep(self, asked: Approval, pattern: str, pin: str) -> None:
        """Write the pattern, now that the request itself is allowed."""
        client, worker = self.port.client, asked["worker"]
        try:
            await client.allow_always(worker["uid"], pattern, pin)
        except PostroomError as error:
            said = f"allowed this once; the rule was not written: {whole(error)}"
            self.over(said, "bad", move=Move.DONE, stays=True)
            return
        back = f"postroom policy {address(worker)} --remove {shlex.quote(pattern)}"
        said = f"allowed, and from now on: {pattern}\nthe post room keeps this rule; to take it back: {back}"
        self.over(said, "good", move=Move.DONE, stays=True)


def _explained(pattern: str, asked: Approval) -> str:
    """What a pattern will allow, and whether that is what is asked now."""
    said = explained(pattern, address(asked["worker"]))
    fits = approves(pattern, asked["tool"], asked["input"])
    return (
        said if fits else f"{said}\nWhat is asked now does not fit it: that is allowed this once."
    )

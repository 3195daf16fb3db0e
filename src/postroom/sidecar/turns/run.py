"""A turn for one message, post or task, from its place in the queue to its end; a `session.AgentRun`."""

from __future__ import annotations

import asyncio
import secrets
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from postroom.errors import StateUnwritable
from postroom.observe import get_logger
from postroom.protocol.alerts import Alert
from postroom.protocol.events import EventKind
from postroom.protocol.verbs import AskInput, Fail
from postroom.sidecar.adapters import Incoming, IncomingTask, Said, run_environment
from postroom.sidecar.adapters.turns import Answer, Asked, Event, TurnSaid, Withdrawn, Write
from postroom.sidecar.adapters.wording import Request, is_post
from postroom.sidecar.agent import AgentGone, AgentHost
from postroom.sidecar.session import AgentRun, Handed, nothing
from postroom.sidecar.turns.context import TurnContext, Watchdog
from postroom.sidecar.turns.process import Processes, Running
from postroom.sidecar.turns.prompts import prompt_of, question_text
from postroom.sidecar.turns.queue import TurnQueue, first
from postroom.sidecar.turns.turn import COMPLETED, Result, Turn, conclude, trouble_in
from postroom_a2a.text import one_line

LINGER = 10.0
"""Seconds that a program for one turn may go on after its result."""

_log = get_logger(__name__)


@dataclass(eq=False)
class ProgramState:
    """What all turns of the program share.

    Attributes:
        grace: seconds for a process to end by itself once `stop` is set.
        current: the process that has a turn, and its run.
        spare: the next end of a process is the sidecar's own doing, and counts as no failure.
    """

    context: TurnContext
    processes: Processes
    host: AgentHost
    grace: float
    tasks: asyncio.TaskGroup
    stop: asyncio.Event
    resident_changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    queue: TurnQueue = field(default_factory=TurnQueue)
    current: tuple[Running, TurnRun] | None = None
    spare: bool = False
    over: bool = False
    _resident: Running | None = None
    _turns: int = 0
    _run: str = field(default_factory=lambda: secrets.token_hex(4))

    async def resident(self) -> Running:
        """The process that runs all the time; waits for it. Raises AgentGone if none will come."""
        async with self.resident_changed:
            while (running := self._resident) is None or running.unasked is not (
                self.processes.unasked
            ):
                if self.over or self.stop.is_set():
                    raise AgentGone
                if running is not None:
                    # People have taken back that it asks for nothing: only its start says so. It is between turns.
                    self.spare = True
                    running.send_signal(signal.SIGKILL)
                await self.resident_changed.wait()
            return running

    async def publish(self, running: Running | None, *, over: bool = False) -> None:
        """Say which process runs; with `over`, that no other follows."""
        async with self.resident_changed:
            self._resident, self.over = running, over or self.over
            self.resident_changed.notify_all()

    def new_turn(self, request: Request) -> Turn:
        """A turn that begins now."""
        self._turns += 1
        loop = asyncio.get_running_loop()
        now = loop.time()
        return Turn(f"{self._run}-{self._turns}", request, now, now, loop.create_future())

    def leave(self, run: TurnRun) -> None:
        """The run's turn is over: the next one has it."""
        if self.current is not None and self.current[1] is run:
            self.current = None
        self.queue.leave()

    def gone(self, running: Running) -> None:
        """The process has ended, and all that this implies was heard."""
        self.processes.ended(running)
        if self.current is not None and self.current[0] is running:
            self.current[1].lost()

    def used(self, usage: Mapping[str, Any]) -> None:
        """Count a usage event."""
        before = self.context.budget.spent
        try:
            self.context.budget.add(usage)
        except StateUnwritable as error:
            _log.warning("the usage is not kept over a restart: %s", error)
        if (why := self.context.budget.spent) and not before:
            self.context.status.stalled(why)
            self.tasks.create_task(_alert(self.context, Alert("budget", why)))


async def _alert(context: TurnContext, alert: Alert) -> None:
    await context.raise_alert(alert)


class TurnRun(AgentRun):
    """The run of one request."""

    def __init__(self, shared: ProgramState) -> None:
        self._shared = shared
        self._context = shared.context
        self._turn: Turn | None = None
        self._running: Running | None = None
        self._question = ""
        self._answered = asyncio.Event()
        self._handed = asyncio.Event()
        self.ended = asyncio.Event()
        self.how_ended = ""
        self.queues = True
        self.begins: Callable[[], None] = nothing

    # ── AgentRun ────────────────────────────────────────────────────────────────────────────────────

    async def hand_over(self, incoming: Handed) -> bool:
        """See `session.AgentRun`. Waits for its turn; returns when the agent was given the prompt."""
        if isinstance(incoming, Mapping):
            return False
        if not await self._shared.queue.enter(self):
            raise BrokenPipeError
        if self._shared.stop.is_set():
            self._over("the worker was stopped")
            self._shared.queue.leave()
            raise BrokenPipeError
        # No `await` since the check of `stop`.
        self.begins()
        self._shared.tasks.create_task(self._live(incoming))
        await self._handed.wait()
        return True

    def tell(self, record: Mapping[str, Any]) -> None:
        """See `session.AgentRun`: of such records, only that a question needs no answer any more."""
        if record.get("type") == "cancel":
            self.wanted()

    async def say(self, record: Mapping[str, Any]) -> bool:
        """See `session.AgentRun`: a cancel, or the answer to its question."""
        if record["type"] == "cancel":
            self._cancel()
            return True
        if record["type"] != "input":
            return False
        if not self.waits:
            raise BrokenPipeError
        request, self._question = self._question, ""
        self._answered.set()
        self._answer(request, Answer(True, text=str(record["text"])))
        return True

    def send_signal(self, number: signal.Signals) -> None:
        """See `session.AgentRun`. A turn that has not begun never begins."""
        if self._running is None:
            self._over("it was ended before it began")
        else:
            self._running.send_signal(number)

    @property
    def free(self) -> bool:
        return self._shared.queue.free

    @property
    def waits(self) -> bool:
        return bool(self._question) and not self.ended.is_set() and not self._yielding

    async def let_go(self) -> None:
        """See `session.AgentRun`. A turn that waits for an answer makes room when another one comes."""
        if self._handed.is_set() and not self._question:
            await self.ended.wait()

    # ── in the queue ────────────────────────────────────────────────────────────────────────────────

    @property
    def _yielding(self) -> bool:
        return self._turn is not None and self._turn.yields

    def wanted(self) -> None:
        """Make room if the turn only waits for the answer to a question: the answer begins a new turn."""
        if self.waits and self._turn is not None:
            self._turn.yields = True
            self._question = ""
            self._answered.set()
            self._shared.tasks.create_task(self._interrupt())

    def _cancel(self) -> None:
        if self._turn is None:
            self._over("it was canceled before it began")
            return
        self._turn.canceled = True
        self._ask_to_stop()  # who cancels kills it after a grace

    def stop_for(self, why: str, *, held: bool = False) -> None:
        """End the turn for a reason, by force if need be."""
        turn = self._turn
        if turn is not None and not turn.stop and not turn.result.done():
            turn.stop, turn.held = why, held
            self._shared.tasks.create_task(self._interrupt())

    async def _interrupt(self) -> None:
        self._ask_to_stop()
        try:
            async with asyncio.timeout(self._context.limits.grace):
                await self.ended.wait()
        except TimeoutError:
            if self._running is not None and not self.ended.is_set():
                _log.warning("the agent is killed: it heeded no interrupt")
                self._shared.spare = True
                self._running.send_signal(signal.SIGKILL)

    def _ask_to_stop(self) -> None:
        if self._running is None:
            return
        if data := self._running.adapter.interrupt():
            self._running.write(data)
        else:
            self._running.send_signal(signal.SIGINT)

    # ── the turn ────────────────────────────────────────────────────────────────────────────────────

    async def _live(self, request: Request) -> None:
        try:
            how = await self._work(request)
            self._over(how)
            turn = self._turn
            held = self._shared.stop.is_set() or (turn is not None and turn.held)
            if isinstance(request, Incoming) and not is_post(request) and not held:
                await self._shared.host.give_back(request.id)
        finally:
            self._handed.set()
            self._shared.leave(self)

    async def _work(self, request: Request) -> str:
        """Take the turn; returns how it ended."""
        turn = self._turn = self._shared.new_turn(request)
        if why := self._context.budget.spent:
            turn.held = True
            self._context.status.stalled(why)
            await self._act_all(
                [Fail(request.id, why)] if isinstance(request, IncomingTask) else []
            )
            return why
        try:
            running = self._running = await self._begin(turn)
        except AgentGone:
            return "the agent has ended and is not started again"
        except (OSError, ValueError, StateUnwritable) as error:
            _log.error("the agent cannot be started: %s", error)
            if isinstance(request, IncomingTask):
                await self._act_all([Fail(request.id, f"the agent cannot be started: {error}")])
            return "it cannot be started"
        watchdog = Watchdog(turn, self._context, self.stop_for)
        watching = asyncio.create_task(watchdog.run())
        try:
            result = await turn.result
            if not running.adapter.resident:
                await self._let_end(running)
        finally:
            watching.cancel()
        watchdog.over()
        self._context.status.said("idle", "")
        return await self._conclude(turn, running, result)

    async def _begin(self, turn: Turn) -> Running:
        """Give the agent its prompt; returns the process that has it."""
        processes, request = self._shared.processes, turn.request
        again = request.resumed if isinstance(request, IncomingTask) else request.redelivered
        newest, news = self._context.base.news()
        prompt = prompt_of(request, same_session=bool(processes.session) and again, news=news)
        if processes.resident:
            running = await self._shared.resident()
        else:
            running = await processes.start(prompt, run_environment(request))
            self._shared.tasks.create_task(self._attend(running))
        if self.ended.is_set() or turn.canceled:  # meanwhile: the agent is not to begin
            if not processes.resident:
                running.send_signal(signal.SIGKILL)
                await running.ended.wait()
            raise AgentGone
        turn.began = turn.last = asyncio.get_running_loop().time()
        self._context.status.troubled("")
        self._shared.current = (running, self)
        running.write(running.adapter.turn(prompt))
        if not processes.resident:
            running.close_input()
        self._handed.set()
        if newest:
            self._context.base.told(newest)
        return running

    async def _attend(self, running: Running) -> None:
        await running.attend(self._shared.stop, self._shared.grace)
        self._shared.gone(running)

    @staticmethod
    async def _let_end(running: Running) -> None:
        try:
            async with asyncio.timeout(LINGER):
                await running.ended.wait()
        except TimeoutError:
            running.send_signal(signal.SIGKILL)
            await running.ended.wait()

    async def _conclude(self, turn: Turn, running: Running, result: Result) -> str:
        """Carry out what the result means; returns how the run ended."""
        lost = self._lost(turn, running, result)
        if self._shared.stop.is_set() or lost:
            self._context.approvals.lost()
            return lost or "the worker was stopped"
        self._context.approvals.over(turn.request.id, self._report)
        held = turn.held and result.status != COMPLETED
        turn.held = held
        if turn.yields or turn.canceled or held:
            return "it waits for an answer" if turn.yields else "it was ended"
        if isinstance(turn.request, IncomingTask) and not self._shared.host.at_work(
            turn.request.id
        ):
            return "it ended"  # the agent has settled the task itself
        await self._act_all(conclude(turn, result))
        return f"its turn ended: {result.status}"

    def lost(self) -> None:
        """The process has ended; a turn whose adapter gave it no result has failed."""
        if self._turn is not None:
            self._turn.end(Result("failed", reason="the agent ended", at_end=True))

    def _lost(self, turn: Turn, running: Running, result: Result) -> str:
        """How the agent ended before the turn had a result of its own, "" if it had one."""
        if turn.stop or turn.canceled or turn.yields or not result.at_end:
            return ""
        ended_early = running.adapter.resident or running.how.signal or running.in_vain
        return running.how.detail if ended_early else ""

    async def _act_all(self, said: list[Said]) -> None:
        host = self._shared.host
        for each in said:
            await host.act(self, each, host.owner_of(each))

    def _over(self, how: str) -> None:
        """All that the turn means is carried out."""
        self.how_ended = self.how_ended or how
        self._question = ""
        self.ended.set()

    # ── what the agent says ─────────────────────────────────────────────────────────────────────────

    def hear(self, running: Running, said: TurnSaid) -> None:
        """Take what the agent says in this turn."""
        turn = self._turn
        if turn is None:
            return
        turn.last = asyncio.get_running_loop().time()
        match said:
            case Event():
                self._event(turn, running, said)
            case Asked():
                self._shared.tasks.create_task(self._asked(turn, said))
            case Withdrawn() if not running.over:
                # What the end of the program implies is no word of the agent: `_conclude` judges that.
                self._context.approvals.withdraw(said.request)
            case Write():
                running.write(said.data)

    def _event(self, turn: Turn, running: Running, event: Event) -> None:
        self._report(event.kind, event.fields, event.raw)
        if (trouble := trouble_in(event)) is not None:
            self._context.status.troubled(*trouble)
        match event.kind:
            case EventKind.TOOL_CALL:
                tool, title = event.fields.get("tool"), event.fields.get("title")
                self._context.status.said("working", one_line(f"{tool}: {title}", 200))
            case EventKind.USAGE:
                self._shared.used(event.fields)
                if why := self._context.budget.spent:
                    self.stop_for(why, held=isinstance(turn.request, Incoming))
            case EventKind.RESULT:
                turn.end(Result.of(event.fields, at_end=running.over))

    def _report(self, kind: EventKind, fields: Mapping[str, Any], raw: str = "") -> None:
        self._context.report(kind, fields, raw, self._turn)

    async def _asked(self, turn: Turn, asked: Asked) -> None:
        """Find the answer to what the agent asks."""
        turn.asking += 1
        turn.changed.set()
        try:
            if asked.question and isinstance(turn.request, IncomingTask):
                await self._question_of(turn.request, asked)
                return
            answer = await self._context.approvals.ask(asked, turn.request.id, self._report)
            if answer is not None:
                self._answer(asked.request, answer)
        finally:
            turn.asking -= 1
            turn.changed.set()

    async def _question_of(self, task: IncomingTask, asked: Asked) -> None:
        """Ask what the agent asks as the task's question; the answer comes by `say`."""
        self._question = asked.request
        await self._act_all([AskInput(task.id, question_text(asked.title, asked.options))])
        if self._shared.host.at_work(task.id):
            self._question = ""
            self._answer(asked.request, Answer(False, text="the question could not be asked"))
            return
        if self._shared.queue.waited_for:
            self.wanted()
        while self._question == asked.request and not self.ended.is_set():
            self._answered.clear()
            await first(self._answered, self.ended)

    def _answer(self, request: str, answer: Answer) -> None:
        if self._running is not None and not self.ended.is_set():
            self._running.write(self._running.adapter.answer(request, answer))

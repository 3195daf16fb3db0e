"""The manifest of promises: what Postroom guarantees to those who use it, each with its source.

A test that proves a promise carries `@pytest.mark.requirement("<id>")`. Many tests may prove one promise, and
a test of a detail needs none. `tests/manifest` holds both sides together: a promise without a test fails, and
so does a mark that names no promise. `python -m tools.promises` writes `docs/promises.md` from this file.

What a changelog says to be no longer so is a row of the kind `mend`, with a test: a later change cannot take a mend back
in silence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

ID_PATTERN = re.compile(r"[a-z0-9]+(-[a-z0-9]+)+")
SOURCE_PATTERN = re.compile(r"[\w./-]+\.md#[\w-]+")
"""A heading of one of our documents, where the promise is explained."""


@dataclass(frozen=True)
class Requirement:
    """One promise: a stable id, its area, where it is explained, and the behaviour in one sentence.

    Attributes:
        kind: `mend` for what a changelog, its source, says with "no longer"; the behaviour is its words.
    """

    id: str
    area: str
    source: str
    behaviour: str
    kind: Literal["promise", "mend"] = "promise"

    def __post_init__(self) -> None:
        if not ID_PATTERN.fullmatch(self.id):
            raise ValueError(f"{self.id!r} is not a row of words joined by hyphens")
        if not SOURCE_PATTERN.fullmatch(self.source):
            raise ValueError(f"{self.id}: {self.source!r} names no heading of a document")
        if not self.behaviour.endswith("."):
            raise ValueError(f"{self.id}: the behaviour is a sentence and ends with a full stop")


def by_id(requirements: Iterable[Requirement]) -> dict[str, Requirement]:
    """Index the promises; the same id twice raises ValueError."""
    index: dict[str, Requirement] = {}
    for requirement in requirements:
        if requirement.id in index:
            raise ValueError(f"{requirement.id} is listed twice")
        index[requirement.id] = requirement
    return index


# One promise a line, so that the table can be read as one.
# fmt: off
# ruff: noqa: E501
_LISTED: dict[tuple[str, str], dict[str, str]] = {
    ("Delivery", "docs/architecture.md#what-it-does"): {
        "bus-ack-means-disk": "A message is accepted only when the server has it on disk.",
        "all-kills-counted": "Whatever is killed, each accepted message ends once, with its effects once.",
        "control-kill-keeps-all": "After SIGKILL of the control plane all of its state is there, and the workers that ran run again.",
        "server-kill-recovers": "After a kill, a hang or a restart of nats-server messages flow again by themselves.",
        "mail-offline-waits": "A message to a worker that does not run is accepted, and waits for it.",
    },
    ("Delivery", "docs/architecture.md#envelope"): {
        "mail-key-once": "One idempotency key is one message, however often it is sent; a send of uncertain outcome names its key.",
        "mail-id-unsquattable": "Nobody can guess the id of another's message; an id that somebody used first is replaced, with an alert.",
        "bus-uncertain-named": '"Nothing was stored" is said only of what the log is known to have refused; any other answer is uncertain, and repeated under its key it is stored once.',
        "mail-malformed-dead": "Malformed records on the bus are recorded as dead or ignored, and stop nothing.",
    },
    ("Delivery", "docs/architecture.md#final-states"): {
        "fold-passed-over-kept": "A record that a rule cannot fold is told and kept in the log; a rebuild by better rules folds it.",
        "mail-states-forward": "A message ends seen, answered or dead; its state only moves forward, and its end stays.",
        "mail-receipt-proven": "Only the recipient and the control plane report on a message or declare it dead.",
        "sidecar-delivered-read": "`delivered` means that the agent's process has read it, `seen` that the agent has confirmed it.",
        "mail-content-whole": "Parts with their media types, subject and thread arrive as they were said, in messages, posts, tasks, answers and requeued letters.",
        "mail-content-refused": "What a recipient's card does not take, or nobody could read, is refused with the part named, before anything is stored.",
        "mail-search-own": "A search by words, thread or agent finds what the principal may see, and nothing else.",
        "mail-unknown-refused": "A message to nobody is refused at once; one to a retired agent, or past its time, is dead with that reason.",
    },
    ("Tasks", "docs/howto.md#an-agent-that-postroom-does-not-run"): {
        "outside-takes-tasks": "An agent with a key and plain HTTP gives and takes tasks, asks, answers, ends them once, and is canceled.",
        "outside-begun-given-again": "After a crash an agent with a key is given its open tasks again by its inbox from the beginning, flagged, until it has said that it has seen them.",
        "outside-answer-fresh": "The answer to a report shows the task with the report, or 503 says that it is stored and how to repeat it.",
    },
    ("Delivery", "docs/api.md#inbox"): {
        "inbox-confirmed-only": "A polled inbox gives a message again, flagged, until its reader acknowledges it; nothing is lost because nobody called.",
    },
    ("Delivery", "docs/architecture.md#streams"): {
        "mail-full-typed": "A message that is too large, or finds a stream full, is refused; what was accepted is never dropped.",
        "bus-consume-redelivered": "Records come in order, and what was not acknowledged comes again, also when its consumer was killed.",
        "mail-retention-covered": "Only final records that a verified copy covers are deleted from the log, however many there are.",
    },
    ("Delivery", "docs/architecture.md#dead-letters"): {
        "mail-deadletter-moved": "A delivery that failed for good becomes one dead letter, with its reason, and takes no other message with it.",
        "mail-requeue-linked": "A requeued letter is a new message linked to the dead one, which stays dead.",
        "mail-floods-contained": "An agent that floods an inbox, the dead letters or the alerts uses up its own share only.",
    },
    ("Delivery", "docs/architecture.md#one-log-one-projection"): {
        "mail-rebuild-equal": "The database is rebuilt from a snapshot and the log behind it, and says the same.",
        "backup-restores-all": "A backup of a running post room restores every accepted message and task into an empty folder, or nothing; its keys are encrypted.",
        "store-moves": "All rows move from SQLite to PostgreSQL and back, every table compared; a database that is not empty is refused.",
        "events-kept-as-said": "Events of coding agents are kept as `retention.events` says; what was used, and what waits for an answer, stays.",
        "retention-chosen": "What you do not keep any more leaves database and log for good; what is open, or an answer to it, stays.",
        "snapshot-older-copy": "Put older files of the database back under a newer log, or none: the next start shows everything again.",
        "client-stream-resumes": "After a loss a live view goes on behind the last record, without duplicates; a slow reader is told of a gap.",
    },
    ("Delivery", "docs/howto.md#write-an-agent-of-your-own"): {
        "agent-library": "A program with a key sends, receives, asks, delegates and does tasks; what it has not confirmed comes again, and nothing else does.",
        "one-vocabulary-of-tasks": "A task is reported by the same words in lines, in a shell and in Python.",
        "agent-unread-told": "A message that a program's code never gets stays unread, and people are told that nobody takes it.",
    },
    ("Delivery", "docs/architecture.md#sidecar"): {
        "sidecar-message-handed": "A message is handed to the agent, and its reply reaches the sender.",
        "sidecar-crash-restarted": "A crashed agent is started again or given up with an alert; all that it had not confirmed comes again.",
        "sidecar-several-at-once": "An agent may hold eight messages; after any kill all come again, what names its message has no second effect, and a line that waits holds back no other message's.",
        "sidecar-whole-messages": "Parts of every kind, subject and thread reach an agent and leave it as they are; what its card does not take is refused, and the sender learns why.",
        "sidecar-unconfirmed-told": "A message that its agent does not read or confirm in time holds up no other; its sender is told.",
        "sidecar-outage-survived": "What an agent sends while the bus is away, or as it is stopped, is stored.",
        "sidecar-lines-survive": "No line that an agent prints can end its sidecar; a flood of lines is held back and loses no post.",
        "sidecar-text-harmless": "Text cannot forge a second message or control sequences for a `text` agent.",
    },
    ("Identity", "docs/architecture.md#identity-and-trust"): {
        "identity-sender-proved": "The subject proves the sender, whatever the payload says, and nobody can publish on another's subject.",
        "identity-inbox-private": "An agent reads nothing that is for another, and the feeds of its own projects only.",
        "identity-replies-not-forged": "A forged or steered reply is stored nowhere, and no receiver believes it.",
        "identity-scope-bounds": "An agent has its own rights and no others, and no signing key can mint wider ones.",
        "identity-credential-required": "Nobody connects or stays connected without a valid credential.",
        "identity-keys-private": "Keys, credentials, sockets, state and audit log are closed to other users.",
        "key-stays-home": "Local commands send the operator's key to a process of its owner alone, also after the post room was killed.",
        "owner-way-in": "The owner gets in while strangers hold every connection of every port.",
        "directory-name-unique": "Equal, look-alike, reserved and uid-like names are refused, and a uid is never given twice.",
        "api-key-required": "The API requires a key; a worker's own routes require the worker's own door.",
        "key-scopes-demanded": "A key does what its scopes allow and no more, and makes no key that may more or lives longer.",
        "key-ends-at-once": "Once a key is revoked, replaced or expired, it opens nothing, and what it had opened has ended.",
        "key-sees-own-alone": "To who does not operate the post room, what is another's looks as if it were not there.",
        "key-acts-recorded": "Whatever somebody changes over the API is in the audit log, with who it was and with which key.",
        "http-host-checked": "No web page and no foreign host name can use the API or a worker's server.",
        "http-proxies-named": "Behind a proxy the API answers to its public names alone, and believes only the proxies that are named.",
        "http-flood-refused": "Beyond its limit of connections the API answers 503 and goes on serving the others.",
        "http-idle-kept": "An idle connection that has shown a valid key is kept for 75 seconds, others for 5; where places run short idle ones go, those without a key first.",
        "http-worker-unforgeable": "No route, path, header or framing makes a request one of another worker or of the operator.",
        "text-controls-stripped": "Hostile text cannot act on a terminal or forge a line.",
        "file-names-harmless": "A file keeps the folder that it is saved into and replaces none unasked, whatever name an agent gave it.",
    },
    ("Identity", "docs/security.md#revocation-and-rotation"): {
        "identity-revocation-everywhere": "Every server cuts a revoked agent within 2 s and never lets it in again; nobody else is disturbed.",
        "identity-revocation-confirmed": "A server that has not confirmed a revocation is named, and is told again when it is back.",
        "identity-renewal-gapless": "A renewal of a credential loses nothing, doubles nothing and fails no call.",
        "identity-rotation-seamless": "The keys of agents, gateway and operator are replaced under load, and nothing is lost.",
    },
    ("Identity", "docs/security.md#organisations"): {
        "org-no-subject-crosses": "No subject that an agent may use reaches another organisation, in either direction.",
        "org-unseen": "To an agent, agents and paths of another organisation look as if they did not exist.",
        "org-create-whole": "An organisation is whole or absent; when it is removed its credentials end; when it fails it stops no other.",
    },
    ("Identity", "docs/security.md#tls"): {
        "tls-beyond-loopback": "Beyond loopback nothing starts without a fitting certificate.",
        "tls-no-cleartext": "With TLS nothing between clients and servers can be read, not even a greeting.",
        "tls-client-verifies": "The client trusts the authority that it is told of alone, and sends nothing to a server without it.",
        "login-pins-authority": "A login sends its key only to a server of the authority that its user confirmed; the key is private.",
        "tls-local-authority": "The local authority vouches for the names that it was made for and no others; its keys are private.",
        "tls-renewal-automatic": "A certificate is renewed in time and cuts no open connection; its end is announced 21, 7 and 1 days before.",
    },
    ("Walls", "docs/architecture.md#the-two-walls"): {
        "sandbox-canary-unreachable": "From inside a sandbox nothing but the gateway can be reached.",
        "sandbox-partial-stated": "A partial wall holds except for the holes that it states; one more hole makes it no wall.",
        "sandbox-kernel-files-closed": "What the kernel shows to root alone, and its settings, are closed, or stated where they cannot be.",
        "sandbox-no-namespaces": "Inside a sandbox no namespace can be made or entered, and only four socket families can be had.",
        "sandbox-no-set-id": "Behind a wall with a system call filter no file gets a set-user-ID or set-group-ID bit or a capability; elsewhere such files are named.",
        "sandbox-select-failclosed": "A wall that does not hold is an error with a remedy, never a lesser wall.",
        "sandbox-stranger-unbelieved": "Another account that touches or floods the canaries neither fails the test of a wall nor hides that one leaks.",
        "worker-starts-with-wall": "A worker that could not be started for want of a wall starts by itself when there is one.",
        "sidecar-wall-tested": "A reachable canary behind an enforced wall ends the worker before its agent runs.",
        "wall-sidecar-closed": "An agent can read neither its sidecar's memory and secrets nor the post room's keys, nor have it run code.",
        "sandbox-host-readonly": "Nothing outside the writable folders of a sandbox can be written, directly or through the sidecar.",
        "reach-opened": "Of the machine a worker of a lesser key has nothing, in any organisation, but what the operator has opened for it.",
        "never-shown": "No worker is shown, by any name or link, a folder of keys, logins or profiles, what has one in it, the post room's own, or /proc and /sys.",
        "template-state-closed": "A template opens neither the state folder nor a door, and sends no file from outside its folder.",
        "wall-dies-with-post-room": "When the post room is killed, its server and every process of its workers end.",
        "inward-socket-itself": "When the control plane asks a worker itself, it follows no link, bounds and checks the answer, and delays nobody.",
    },
    ("Operation", "docs/api.md#websockets"): {
        "websockets-bounded": "A WebSocket takes the checks, bounds and errors of every request, and costs no memory when nobody reads.",
    },
    ("Coding agents", "docs/architecture.md#adapters-and-turns"): {
        "failing-last-word": "The newest error of an agent, and what it prints that cannot be read, is its last word in `status`, on the screen and in `task show`, with the time of its next try where it says that.",
        "coding-turns": "A coding agent takes messages, posts and tasks as turns, one after the other in one session; its last words are the answer, and a message counts as seen only by its turn's result.",
        "coding-session-survives-sigkill": "After SIGKILL of the agent or of its sidecar in mid-turn the same work goes on in the same session.",
        "coding-bounds-hold": "A turn over its limit is ended, by force if need be, and an agent without a sign of life counts as stalled until it goes on.",
        "coding-budget-holds": "A spent budget ends the turn, refuses tasks and keeps messages, also over restarts, until a person raises it.",
        "coding-policy-no-shell-tricks": "A pattern with an argument allows no shell command that can run more than it names.",
        "policy-plain-commands": "Patterns with an argument allow a line of shell if each of its plain commands is named by one, for the folder to which a `cd` before it led; any other form is asked.",
        "policy-why-not": "Where no pattern can allow what an agent asks, the dialog and `postroom approvals ID` name the part of the line that is the reason.",
        "coding-approval-asked-once": "What an agent asks waits for a person over restarts; the answer is used once, by the request that it was given for.",
        "coding-home-no-links": "The agent's configuration is written through no link that the agent has made.",
        "coding-events-outlast-the-plane": "Events wait on disk while the control plane is away, and none is lost or doubled by SIGKILL of it or of the sidecar.",
        "agents-real": "Claude Code and Codex themselves, pinned, answer, ask, are denied, interrupted and killed in their sandboxes, and never have the model's key.",
        "agents-any-output": "Nothing that a coding agent prints ends its adapter or hides the next line, and each turn has one result with nothing left open.",
    },
    ("Coding agents", "docs/architecture.md#events"): {
        "events-folded-once": "Each event of a worker's agent becomes one row under one id, whatever is in it.",
        "events-followed-gapless": "Who follows a worker's events gets each one once, in order, across replay, loss and slowness.",
        "events-rebuilt-equal": "A rebuild gives the same rows of events under the same ids, with a snapshot or without, on both databases.",
        "usage-counted": "Tokens and cost are counted per worker, and per task of that worker, from what its agent reports.",
        "events-survive-kill": "When the control plane is killed while events flow, none is lost and none comes twice.",
        "events-reported-once": "An event that a sidecar reports twice counts once, across restarts and however it is batched.",
        "events-known-skipped": "After a kill a sidecar is told by one answer how far its run was taken: what it asks then is seen at once, and what was known counts against no share.",
    },
    ("Coding agents", "docs/architecture.md#watching-and-answering"): {
        "attach-shows-all-kinds": "Attached to a worker one sees what its agent does, whole from any event on, then live.",
        "attach-text-harmless": "No text of an agent acts on a terminal, is wider than it, or passes for a line of ours.",
        "attach-approval-folded": "Runs of blanks and of lines alike in what is asked are counted, not shown, so that nothing is pushed out of sight.",
        "attach-approval-exact": "What an agent asks to be allowed is shown whole, with a name for each character that hides.",
        "attach-answers": "What an agent asks is answered where it is shown, by a person at a terminal alone.",
        "task-events-shown": "Who waits for a task in a terminal sees what the agent does for it; a script sees the task alone.",
        "project-activity": "What happens in a project is told beside its posts, in order, once each, and nothing is written for it.",
    },
    ("Screen", "docs/terminal.md#open-it"): {
        "one-word-starts": "`postroom` at a terminal starts a post room if none runs, once however many ask for it, says how it ends, and never starts one in a pipe or in continuous integration; the open screen starts it again by a key.",
        "one-word-offers": "In a repository without a worker of its own `postroom` offers one in one dialog, in which Enter takes the usual: an agent that is installed, its key, the folder, how far it goes by itself, its first task; elsewhere it says why not.",
        "one-word-to-a-merge": "From an empty home and the clone of a project, `postroom`, a task and at most 12 keys lead to the merged change of a real coding agent.",
        "screen-opens": "In a terminal `postroom`, chat, attach and approvals open the screen on what they name; in a pipe, with --no-tui or without the extra they print lines.",
    },
    ("Screen", "docs/terminal.md#what-a-worker-does"): {
        "screen-worker-as-it-works": "The right pane shows what a worker does as it does it, whatever the width, and text of its agent can do nothing to the terminal.",
        "screen-zoom": "Enter shows a pane over the whole width, and brings the others back.",
        "screen-merge-as-shown": "A merge after a look brings exactly what was shown: if the worker has gone on since, nothing is merged, and it is shown again.",
        "screen-merge": "In the diff `m` says into which branch a merge would go and what it leaves out or what hinders it, one `y` merges, and `u` takes it back; keys that can do nothing are not shown.",
        "screen-sync": "In the diff `s` brings a worker up to its person's newest commit, and offers its agent what conflicts.",
        "screen-review": "Files of a diff are marked as seen as long as their change is the same, comments on lines and files go to the agent as one message with places, and a file opens whole in the editor; marks and comments outlive the screen.",
        "screen-task-tree": "From any task one sees its tree: who gave it, up to the first requester, and all that came of it.",
    },
    ("Screen", "docs/terminal.md#answer"): {
        "screen-need-shown-exactly": "A dialog shows all that is to be allowed, with a name for each character that hides, at any size of the terminal.",
        "needs-one-order": "What waits for an answer stands in one order wherever it is listed, what expires soon before what is older, and `n` opens what stands first.",
        "screen-need-guarded": "No dialog opens while one types, and no key that was meant for something else decides anything.",
        "screen-need-answered-elsewhere": "An open dialog says by whom its request was answered elsewhere, and an answer that came too late says so.",
    },
    ("Screen", "docs/terminal.md#when-you-look-elsewhere"): {
        "screen-calls": "Something new that needs a person rings a bell or is a desktop notification, at most once in five seconds and not while they look; no text of an agent gets out of it.",
    },
    ("Screen", "docs/terminal.md#reading"): {
        "screen-text-harmless": "Nothing in an agent's text acts on the terminal of the screen, opens a link unasked, or leaves its place.",
        "screen-markdown": "Headings, lists, quotes, code, tables and bold text of agents are drawn, a link as its text with its address; nothing is hidden or loaded.",
        "screen-scrollback": "A log keeps 100,000 rows, follows its end, and stays where it is while one reads above; folding, search, copy and links work by key and mouse.",
    },
    ("Screen", "docs/terminal.md#feeds-and-conversations"): {
        "screen-said-once": "What one sends shows at once, with its state as that changes; it goes once, and a restart of the post room loses and doubles nothing.",
        "screen-task-answers": "A conversation shows each task with what came of it below its request, a long answer folded.",
        "screen-seen": "A message counts as seen once it is before the eyes of the person, and not before.",
        "screen-search": "What was said long ago is found by its words, and opened in its place.",
    },
    ("Screen", "docs/terminal.md#type"): {
        "screen-types-operating": "`/apply`, `/policy` and `/alerts` in the line merge, show and change what a worker does unasked, and show and clear what went wrong.",
        "screen-keeps-unsent": "A message that could not be sent stands in the line again, and why is said above it.",
    },
    ("Screen", "docs/terminal.md#leave"): {
        "screen-fails-in-a-line": "A failure of the screen leaves one line on the terminal, and the details in a file.",
    },
    ("Screen", "docs/terminal.md#rooms"): {
        "screen-lists": "Names with numbers stand as people count (`c2` before `c10`) wherever they are listed; in the screen `/` filters the list with each letter, Esc shows all again, and projects fold.",
        "screen-marks": "Acts in the list take all marked workers or requests after one question; a request that is not shown whole is not decided.",
        "screen-state-fresh": "What needs a person stands first and follows what happens without polling; after the post room was away the screen shows what happened meanwhile.",
    },
    ("Coding agents", "docs/architecture.md#terminals"): {
        "terminal-one-at-a-time": "A worker has one open terminal at a time, and a second person is told whose it is.",
        "terminal-through-gateway": "A terminal runs in the sandbox and passes the gateway, and who opened it is in the log and the audit log.",
        "terminal-ends": "A terminal ends with its shell, its person, its worker and the post room, and says why.",
        "terminal-of-execd": "On OpenSandbox a terminal is execd's where it opens any, with the same promises, and its loss is told.",
    },
    ("Walls", "docs/security.md#levels-of-a-wall"): {
        "isolation-asked-for": "A template cannot ask for a weaker wall than a person has allowed.",
        "isolation-shown": "A wall that is not enforced, and a limit that this machine cannot keep, are shown wherever the worker is.",
    },
    ("Walls", "docs/security.md#limits"): {
        "limit-exceeded-ended": "A worker beyond its memory, processes, disk or time is ended, and can hide nothing from the count.",
        "limit-final-state": "A limit that was exceeded is a final state and an alert that name it; only a person starts it again.",
    },
    ("Walls", "docs/operating.md#workers-on-opensandbox"): {
        "opensandbox-lifecycle": "A worker on an OpenSandbox server has a wall that holds, and leaves neither sandbox nor secret there.",
        "gateway-tls": "On the gateway's address for other machines a token opens its own door, with TLS only; strangers get no answer.",
    },
    ("Gateway", "docs/security.md#against-an-agent-gone-bad"): {
        "attack-publish-refused": "No publish outside its rights gets an agent anything, and each is in the audit log.",
        "attack-subscribe-refused": "No subscription outside its rights hears anything.",
        "attack-headers-refused": "No header of a worker's deletes, delays, traces or rolls up what is not its own.",
        "attack-unseen": "To an agent, what belongs to others looks as if it did not exist.",
        "attack-server-refuses-alone": "The server alone, without the gateway, refuses every attack on the rights of others.",
        "attack-flood-slowed": "Floods and odd messages of one agent are slowed down or refused, while all others are served.",
    },
    ("Gateway", "docs/security.md#nats-through-the-door"): {
        "gateway-nats-proof": "A worker's credential is worth nothing without the gateway's signature, given at the worker's own door.",
        "gateway-token-bound": "A token opens its worker's door alone, while that is open; a wrong one gets no answer and is recorded.",
        "gateway-nats-info-reduced": "No greeting, at the beginning or later, tells an address of the bus.",
        "gateway-nats-no-smuggling": "A real server hears only what the gateway has allowed and recorded, however the bytes are cut or spelled.",
        "gateway-nats-violation-answered": "A violation is answered, recorded and alerted; too many cut a worker off until its next start.",
        "gateway-rates-bounded": "A worker that sends too fast is slowed down; one that stores too much in an hour is refused; both are told.",
    },
    ("Gateway", "docs/security.md#egress"): {
        "egress-address-guarded": "The gateway connects to public addresses and to what the operator opened, and to no other by any spelling.",
        "egress-refused-told": "A request to a host that the template names leaves over verified TLS; a refusal names the missing rule.",
        "egress-credential-bound": "A credential is added where it is bound and named, and nowhere else.",
        "failing-refused-key": "A credential that its host refuses is one alert with the command that mends it, until it is accepted again.",
        "egress-key-outside": "A worker uses a key that is nowhere in its sandbox, nor in any answer, log, record or listing.",
        "egress-headers-cleaned": "A request is written anew, without framing that two could read differently; a tunnel carries its host's TLS alone.",
    },
    ("Audit", "docs/security.md#the-audit-log"): {
        "audit-recorded-first": "What passes a door is recorded before it passes; what cannot be recorded does not pass.",
        "audit-acts-explained": "Each act of a worker is in the audit log with its cause, without a token and without what was said.",
        "audit-once-in-order": "Every record is read back once and in order, whatever is killed, rotated or torn.",
        "audit-full-disk-heals": "A full disk stops traffic with one alert, or is counted in lossy mode; it heals by itself.",
        "audit-copied": "Every line is copied to the organisation's stream, which no agent can reach.",
        "audit-server-side": "Acts of agents without the gateway are in the log, too, and nothing is listed twice.",
        "audit-read-filtered": "Records are found by worker, task, time and verdict, in one's own organisation, and followed.",
    },
    ("Operation", "docs/architecture.md#background-work"): {
        "background-supervised": "Background work outlives faults of database, bus and disk; people are told once while some fails, and only what is declared fatal ends anything.",
    },
    ("Audit", "docs/api.md#alerts"): {
        "alerts-cause-once": "What happens again is the same alert; it ends with its cause, and a cleared one stays cleared.",
    },
    ("Tasks", "docs/architecture.md#tasks"): {
        "task-visible-at-once": "An accepted task is on disk and can be seen at once, whether or not its worker runs.",
        "task-request-runs-once": "The same request, repeated under its key, is the same task, and it runs once.",
        "task-kill-ends-once": "Whatever is killed in mid-task, the task ends once, and the person sees every attempt.",
        "task-kill-requester-told": "The requester of a task is told each change, in order, whatever is killed meanwhile.",
        "rebuild-owes-the-same": "After `admin rebuild` whoever was not yet told of the end of a task is told.",
        "task-one-runner": "Of two runners of one task only one can write its records; the other stops.",
        "task-stored-once": "What is stored of a task grows with what is said of it, however long it streams; no record repeats the whole task.",
        "task-queue-keeps-order": "A worker does its tasks in the order of their requests, and not behind messages that are not confirmed.",
        "task-stop-keeps-answered": "Stopping a worker fails none of its tasks.",
        "task-hopeless-ended": "A task that nobody will ever run, because its worker is gone or removed, ends once, with the reason.",
        "task-answer-resumes": "A question raises one alert; the answer that was stored first resumes the same task.",
        "task-cancel-interrupts": "A canceled task never begins, or its agent is interrupted, and killed after a grace.",
        "task-seen-by-parties": "On the bus only its worker and its requester know a task, and only the requester cancels and answers it.",
        "task-refused-when-not-offered": "Work that a worker's card does not offer is rejected, with the reason.",
        "task-retry": "A task that failed, was canceled or rejected is asked for again as a new one with the same message, once however many ask at a time, and both name each other.",
        "task-attempts-bounded": "A task is begun as often as its template says, and not twice where that says it is not safe; then it has failed, with the reason.",
        "task-given-up-kept": "A task whose attempts are used up is a dead letter with reason and attempts, from which it is asked for again.",
        "task-waiters-end": "Who waits for a task that does not end reads it once, is answered at the deadline, and leaves nothing behind.",
        "task-door": "A task shows over what it was asked for, as the control plane saw it; what came over the bus says so whatever it claims.",
        "task-skill-chosen": "A task for a skill goes to an agent that has it: online first, then the one with the least to do.",
        "task-agent-delegates": "An agent asks another for a task, and is told what became of it.",
        "task-news-from-log-only": "An agent hears of tasks from the control plane alone, which reads the log; no worker can lie about one.",
        "client-task-followed": "A task is followed to its end across lost connections, without duplicates; what keeps it is told.",
    },
    ("Tasks", "docs/architecture.md#blobs"): {
        "blob-kept-by-hash": "An upload is kept once under its SHA-256; of one that failed or was refused nothing is left.",
        "blob-readers-named": "Only its uploader, the operator and those whom a reader has named it can read a blob; its hash is worth nothing.",
        "blob-artifact-reference": "A worker gives an artifact of any size by reference, in bounded memory.",
    },
    ("A2A", "docs/a2a.md#what-holds"): {
        "http-killed-anywhere": "Whatever is killed, an A2A client over HTTP finds its task, ended once; its stream goes on where it was; the same message is the same task.",
        "http-waits-no-read": "A call that waits for a task over HTTP reads nothing while it waits; it ends with its task, its caller or its deadline.",
        "a2a-http": "Any A2A client with a key reaches any agent over JSON-RPC and REST, by the rules of the specification; a task for one that is offline waits.",
        "a2a-http-versions": "Clients of A2A 0.3 and 1.0 have the same tasks; the translation loses nothing that 0.3 has a place for.",
        "a2a-stored-is-found": "While the fold is behind, what a call has stored is waited for, or 503 names it and says how to repeat it; never is there no such task.",
        "a2a-http-resumes": "A stream that comes back with its last id brings every change behind it once, also after the post room was killed.",
        "a2a-http-same-request": "The same message id of the same caller, also twice at a time, is one task that runs once.",
    },
    ("A2A", "docs/a2a.md#the-card"): {
        "a2a-http-card": "An agent's card over HTTP names its address there and is signed, as the official SDK verifies it, too; without a key only a card that was declared public is shown.",
    },
    ("A2A", "docs/architecture.md#local-api"): {
        "a2a-client-speaks": "The A2A client sends, streams, answers, cancels and lists at a server of the SDK: JSON-RPC and REST of 1.0, JSON-RPC of 0.3.",
        "a2a-client-guarded": "The post room calls no private address for an A2A client unless the operator has opened it: nothing is sent.",
        "remote-tasks": "A task for an agent of other people goes to its A2A server; progress, questions, results and cancels pass both ways.",
        "remote-ends": "A task of an agent that is dead, forgets it, refuses it, breaks A2A or is late fails with the reason; nothing hangs.",
        "remote-own-task": "What another agent says of another task than the one it was given is refused.",
        "remote-survives": "A task for an agent of other people goes on after SIGKILL of the post room at any point, and is one task there.",
        "remote-faults": "A task for an agent of other people goes on after a fault of the post room's own database, and the other side never learns of it.",
        "a2a-by-hand": "postroom a2a gives any A2A server a task, waits for it, answers, lists and cancels, without a post room.",
        "remote-credential": "The credential of an agent of other people is added to requests to its host alone, and no answer shows it.",
        "client-retries": "A call is repeated after network errors and 5xx with the same message id, within its deadline, and never after a 4xx.",
        "a2a-parts-pass": "Parts of every kind, with metadata that nobody here knows, pass unchanged from an A2A client to the task and back.",
        "a2a-server-speaks": "An A2A client gives this worker, or another, a task at the worker's port, follows it and has the result.",
        "ephemeral-streams": "A stream of another's task shows each change once, in order, also when workers are away or killed.",
        "ephemeral-own-tasks": "Over rpc a requester reads, follows and cancels its own tasks; others look as if they did not exist.",
    },
    ("A2A", "docs/architecture.md#registry"): {
        "cards-live-registered": "The registry has the signed card of a worker while it is online; a changed card does not verify.",
        "cards-claims-refused": "A card that claims another's name or URL is refused with an alert, and only the control plane writes cards.",
        "agents-every-kind": "The directory answers who an agent is, whether it is there and what it can do, whatever its kind.",
        "cards-found-by-skill": "People and agents find agents by skill and text, and see whether they are online.",
    },
    ("A2A", "docs/binding.md#durable-requests"): {
        "binding-durable-begun-once": "A stored request is begun once and ended once, whatever is killed.",
        "binding-durable-answer-own": "A client gets only answers to its own calls, and the listed rights keep clients apart.",
        "binding-durable-provisioned": "Streams of durable calls are bounded, shared by all makers, and used as they are provisioned.",
    },
    ("A2A", "docs/conformance.md#what-the-kit-says"): {
        "a2a-conforms": "To the SDK's own client an agent is the same over JSON-RPC, REST and gRPC, and keeps the rules that the official kit checks.",
    },
    ("A2A", "docs/a2a.md#grpc"): {
        "grpc-same-as-http": "Over gRPC an agent is the same as over HTTP: the same operations, rights and errors, and no other version than the one that its card states.",
    },
    ("A2A", "docs/binding.md#operations"): {
        "core-interop-methods": "Peers of the wire `a2a-nats/1` in TypeScript and ours understand each other's calls and cards.",
        "core-sdk-client": "The SDK's client and handler work over NATS and JetStream, in A2A 1.0 and 0.3, in JSON and protobuf.",
        "handler-same-as-sdk": "Our handler runs an unchanged executor by the rules of the SDK's default one.",
        "handler-end-final": "Nothing is written over the end of a task, and of two writers one is refused.",
        "errors-rpc-lossless": "An error keeps code, message and data on the way to the client; an unforeseen exception shows no text.",
    },
    ("A2A", "docs/binding.md#replicas"): {
        "replicas-one-runner": "Of several processes that serve an agent one runs a task: follow-ups, cancels and repeats reach it, and no task outlives it at work.",
    },
    ("A2A", "docs/binding.md#limits"): {
        "core-busy-told": "A call too many waits a moment and is refused; one caller leaves room to others; a cancel gets through.",
        "core-stream-window": "A slow reader costs the server no memory, and loses its stream after a time.",
        "core-deadline-kept": "A call past its deadline is not begun; a server that ends finishes or answers what it has.",
        "core-no-deputy": "Neither server nor client publishes to a place to which a request steers it.",
        "core-sdk-unneeded": "Server, sidecar and start of a post room load neither the A2A SDK nor protobuf.",
        "core-never-deaf": "No peer makes a server deaf: malformed frames, floods, early leavers, readers that never read.",
        "connection-identity-proved": "A refused credential is an error at once; TLS that is asked for is verified, or the connection fails.",
        "connection-order-kept": "Messages come in order, each once, in bounded memory, and an outage loses no subscription.",
        "content-large-arrives": "An artifact of 20 MB arrives whole, checked for size and digest, in every version and encoding.",
    },
    ("Command line", "docs/architecture.md#command-line"): {
        "cli-errors-one-line": "An error is one line with its remedy; Ctrl-C and a closed pipe leave no traceback.",
        "errors-exit-codes": "The exit status tells what kind of error it was, and how a message or a task ended.",
        "login-of-program-apart": "A login with the key of a program replaces no login of its user, and commands go there only if they are told to.",
        "login-names-the-room": "What is typed says which post room a command is for, else the environment, else the login; what works here alone never works there.",
        "login-used-as-owner": "With a key and TLS, people and agents of another machine use a post room, each as themself; a revoked key is dead on the next call.",
        "version-names-commit": "`--version` and `status` name the commit that they were made from, and `status` says when command and post room differ.",
        "cli-words-expected": "The help has its commands in groups; `ps`, `ls`, `help` and `version` are there; a nick, a setting or a command that is nearly one is named.",
        "cli-several-workers": "`stop`, `restart`, `interrupt`, `revoke` and `remove` take several nicks: a line each, and the exit status of the worst.",
        "cli-json-everywhere": "Every command that answers takes `--json`.",
        "cli-send-waits-answered": "`send` and `delegate` print an id that is on disk, and with `--wait` the answer alone on the output.",
        "spawn-closed-host-said": "A private address that a template names and the operator has not opened is refused at the spawn, with the command that opens it.",
        "cli-spawn-starts-up": "`spawn` with nothing running starts one post room and says so.",
        "answer-waits-said": "An answer to a stopped worker is taken once, at once; `status`, the screen and `task show` say that it waits for the worker's start, and the task needs nobody.",
        "cli-status-attention": "`status` shows first what waits for a person; `watch` and `logs` miss nothing, also across restarts.",
    },
    ("Command line", "docs/architecture.md#templates"): {
        "template-unknown-refused": "A template is checked whole before anything is made of it; what is wrong is named with its place.",
        "worker-spawn-all-or-nothing": "A worker is in the directory with all that starts it, or leaves nothing.",
        "worker-start-awaited": "`spawn` says when the agent ends at once, with its last words.",
        "worker-restart-reloads": "A restart takes template and files anew, and keeps uid, inbox and open tasks.",
        "worker-remove-asks": "Only a person's word removes a worker with open tasks, or what removed workers have left on disk.",
        "worker-fault-contained": "A fault of one worker's start or end is told, and ends no other worker.",
    },
    ("Coding agents", "docs/coding-agents.md#what-postroom-finds-by-itself"): {
        "template-programs-found": "A coding agent's program is found where npm, a version manager or its own installer put it, and only what it needs of the machine is shown to its sandbox.",
        "template-spawn-works": "`postroom spawn claude-code` starts an installed coding agent in a sandbox with its model's key outside, and a task for it is done.",
        "template-key-outside": "The key of a coding agent's model is stored from the environment only if the person says so, and is in no argument, output, log or sandbox.",
        "mcp-servers-reach-agents": "An MCP server of a template is in the coding agent's own configuration, runs in the sandbox or is reached through the gateway with its credential, and is a skill of the card.",
        "doctor-names-remedy": "`doctor` says what this machine and a template lack, each with what mends it, without a post room and within a bound.",
        "agents-know-colleagues": "A coding agent is told who else is there and how to reach them, in a text that no colleague's words can change.",
    },
    ("Operation", "docs/architecture.md#embedded-server"): {
        "migration-copied": "The files of a SQLite database are copied before a migration changes them; without room for that it is refused and nothing is changed.",
        "disk-full-said": "`status` and the screen say that the disk is full while it is; a worker that filled it can be stopped.",
        "disk-full-refused": "On a full disk messages and starts are refused and nothing that runs ends; with space it goes on by itself.",
        "state-lock-exclusive": "A second post room or server on one folder is refused and told who has it, until the first has ended.",
    },
    ("Operation", "docs/architecture.md#http-api"): {
        "http-waiters-cheap": "Ten thousand callers may wait for up to an hour, below 20 kB each; a wait ends with its caller.",
        "api-described": "The OpenAPI document says of every route its scope, parameters, bodies, answers and errors, with examples.",
        "api-as-described": "No answer has a form or a status that the document does not describe, and no request that it allows makes a 5xx.",
        "api-nothing-of-others": "Nothing of another person, or of another organisation, is in any answer to who may not see it.",
        "api-allow-whole": "A method that a path has not is answered with 405, and `Allow` names all that it has.",
        "http-readyz-truthful": "`/livez` answers before the API is open, `/readyz` says whether it is, and what is away of database and bus.",
    },
    ("Operation", "docs/operating.md#settings"): {
        "settings-precedence": "A setting comes from a flag, else the environment, else a file; an impossible value is refused.",
        "settings-survive-restart": "`config set` changes one value, leaves every other line, and holds for each later `up`.",
        "settings-secret-hidden": "No secret among the settings is printed, or taken from where others can read it.",
    },
    ("Operation", "docs/operating.md#limits-of-callers"): {
        "json-bounded": "JSON that is too deep or has too many values is refused by its bytes alone, before anything is built of it, at every door, on the bus too.",
        "text-whole-characters": "Half a character in a text is bad input wherever it stands, never a fault of the post room.",
        "caller-limits": "A caller over a limit gets 429 and when to come again, before its body is read; guesses of keys are slow and lock nobody out.",
        "caller-valid-key-taken": "A valid key is never refused for others' wrong ones, however many come from its address and name its agent.",
        "caller-rotations-bounded": "Who is not the operator makes and replaces keys at a bounded rate.",
        "caller-bodies-weighed": "A body counts for its key's rate by its bytes and its values, large ones of one key wait for one another, and streams are opened at a bounded rate.",
        "caller-rate-bounded": "In no span of time a caller gets more than its burst and its rate, and who keeps to the rate is never refused.",
        "open-tasks-bounded": "An agent has a bounded number of open tasks; a repeated request is still answered with its task.",
    },
    ("Operation", "docs/operating.md#metrics-and-traces"): {
        "metrics-true": "`/metrics` agrees with what happened, names nobody in a label, and is for the operator and who operates.",
        "metrics-loop-held": "`/metrics` says how long one piece of work has kept all others waiting of late.",
        "traces-one": "What a caller asks for, and what its workers delegate for it, is one trace of few spans; without OpenTelemetry it costs nothing.",
        "metrics-dashboard": "Every query of the dashboard and of the alert rules names metrics and labels that a post room exports.",
    },
    ("Operation", "docs/operating.md#run-at-boot"): {
        "unit-systemd-runs": "The systemd unit and the launchd job run this post room, and `down` ends it whatever its HTTP port says.",
        "start-inherits-nothing": "However a post room is started (nohup, ignored or blocked signals, no standard input, umask 000), agents and terminals have default signals, its files are private, and it ends when told.",
    },
    ("Operation", "docs/operating.md#running-on-your-own-nats"): {
        "bus-remembered": "`up` and `admin rebuild` refuse another bus than the log is on, and name the right one.",
        "nats-unfit-refused": "Servers that are too old, lose what they acknowledge, or lack something are refused with a remedy.",
        "nats-node-death-keeps-accepted": "When one of three servers dies, nothing accepted is lost and the post room goes on.",
        "nats-cut-off-left": "Who is connected to a server of a cluster that is cut off from the others leaves it for one of them; with one server configured nobody leaves it.",
        "nats-config-accepted": "What `postroom nats config` prints is what a server needs, and holds no private key.",
        "server-death-reported": "A server that goes and comes back is reported and ends nothing; one that keeps crashing is given up, with its last words.",
    },
    ("Operation", "docs/operating.md#tasks-in-surrealdb"): {
        "surreal-crash-between": "With tasks in SurrealDB a fault or a crash between its commit and SQL's loses no task and no change, and doubles none.",
        "surreal-one-process": "One process at a time has a folder of SurrealDB open and one post room its tasks; what was committed survives SIGKILL.",
        "surreal-library-final": "Of two replicas that save one task in SurrealDB one is refused, and none writes over a task that has ended.",
    },
    ("Approvals", "docs/architecture.md#approvals"): {
        "approval-one-object": "What an agent asks before it acts is one durable object with all that it says, also after a rebuild.",
        "approval-first-answer-wins": "Of all answers to an approval the first in the log counts; it is stored before it is said to be, and the others are told of it.",
        "approval-person-unforgeable": "Only who calls the API with a key can be named as who decided; what a worker reports never is.",
        "approval-shown-decided": "What is allowed is what was shown: no later request takes the place, or the short id, of one that a person is about to answer.",
        "approval-never-hangs": "An approval that nobody answers expires with its default, and one that nobody waits for is withdrawn, also over restarts.",
        "approval-told-at-once": "A pending approval is an alert and stands first in `status`, with the commands that answer it, until it is settled.",
    },
    ("Approvals", "docs/coding-agents.md#always-for-this-tool"): {
        "policy-added-at-once": "A pattern that a person adds for one worker counts at once and over restarts and a changed template, never above what the template denies, until it is removed; who added it is shown.",
        "always-at-each-door": "`a` and `A` answer where a person answers in lines as they do in the screen, with the PIN; a command that allows more says what it has answered.",
        "policy-answers-waiting": "What waits when a rule is added or autonomy is set, and is allowed by it, is answered then, in the name of that person; what the template denies is not.",
        "policy-path-plain": "A pattern for a folder allows no path or URL that leaves it by `..`, `//` or another spelling, and takes one that stays however it is written.",
        "policy-one-field": "An input with several fields by which a tool may go is allowed by no pattern with an argument, and denied by each that fits one of them.",
        "policy-added-narrow": "A pattern that would allow every tool or every command of a shell cannot be added; the one that is proposed for a command allows that command alone.",
    },
    ("Approvals", "docs/coding-agents.md#let-it-work"): {
        "autonomy-set": "Who may approve sets how much a worker does unasked (`ask`, `edits`, `all`), at its spawn too; it is kept, told to the agent's sidecar, and shown with who has set it.",
        "autonomy-until-task-ends": "What is set until a task ends counts in the turns for that task alone, over restarts and SIGKILL, and what the template denies stays denied.",
        "autonomy-edits-in-folder": "Autonomy for edits allows tools that change files in the worker's folder, and none of a path that leaves it or begins with a dot.",
    },
    ("Approvals", "docs/security.md#approvals-and-pins"): {
        "policy-pin-demanded": "Once a person has set a PIN, no worker is spawned, given another template or more of the machine in their name without it, and no key is made that could.",
        "approval-pin-demanded": "Once a person has set a PIN, no decision in their name counts without it; wrong tries are few, also over restarts.",
        "approval-edit-refused": "Where the protocol of an agent has no place for an edited input, none can be given on any door, nothing is shown as edited, and the key for it is not there.",
        "approval-edit-plain": "What a person edits is the command or the new text of the file; with characters that do not show, or without one such text, it is JSON with escapes.",
        "approval-cli-refuses-agents": "The commands that decide refuse inside a worker or below a coding agent; that is a courtesy.",
    },
    ("Announcements", "docs/api.md#announcements"): {
        "announcements-reach-everybody": "An agent's announcement is kept on its outbox, and a follower who comes back reads each once.",
    },
    ("Operation", "docs/operating.md#running-on-your-own-postgresql"): {
        "postgres-start-waits": "A start waits for a PostgreSQL that is just coming up, for 40 seconds and saying so; what no waiting mends ends it at once.",
        "postgres-outage-survived": "PostgreSQL may be killed and started again while messages flow: nothing is lost, and the post room goes on.",
        "postgres-orgs-apart": "Organisations in one PostgreSQL see nothing of each other, and no two post rooms share one.",
        "store-contract-kept": "SQLite, PostgreSQL and SurrealDB keep the same rules: a batch and its cursors are stored together, identity before the answer.",
        "store-older-refused": "State and backups from before the first migration that is kept are refused with the commit that brings them up to date, and nothing is touched.",
        "store-orgs-apart": "Organisations share one database of accounts and see, change and take nothing of each other's, on every database.",
        "store-pages-indexed": "A page of a long list costs hardly more than one of a short list, on both databases.",
    },
    ("Coding agents", "docs/adapters.md#the-agent-client-protocol"): {
        "acp-interrupt": "An interrupt cancels the turn, and every open question is answered `cancelled` and withdrawn.",
        "acp-mcp-servers": "The template's MCP servers come with the session; one that the agent cannot have is said.",
        "acp-permission-by-kind": "A question is answered by the kind of an option, never by its id or place; an edited input is a denial.",
        "acp-real-agents": "Claude Code, Codex, Gemini CLI and OpenCode run a turn with a question over one driver.",
        "acp-session-resumed": "After a restart the session goes on without its past becoming events again; where it cannot, the agent is told.",
    },
    ("Coding agents", "docs/adapters.md#your-own-adapter"): {
        "adapter-of-another-package": "A package brings an adapter by an entry point; an adapter that no package has is refused with those that there are.",
    },
    ("Installation", "docs/binding.md#installation"): {
        "install-library-alone": "The library alone has every public name and declares what it imports.",
        "release-versions-agree": "A release builds Postroom and the library, only if tag, projects and changelog state one version.",
    },
    ("Installation", "CONTRIBUTING.md#dependencies"): {
        "package-imports-declared": "Each third-party import belongs to a pinned dependency with bounds, and no file names a registry or a machine.",
        "install-by-hash": "The install that the README shows takes exactly what is tested, each package checked by its hash.",
        "package-footprint-bounded": "The base install and an idle sidecar stay under their stated sizes.",
        "docs-commands-run": "Each command, template and program that the documents show works as it stands.",
        "demo-in-screen": "In a terminal `make demo` opens the screen on two workers, where the person answers a question and approvals and finds a branch.",
        "demo-task-completed": "`make demo` exits 0 if its task was completed, and leaves nothing behind.",
    },
    ("Installation", "CONTRIBUTING.md#promises"): {
        "manifest-promises-tested": "Each promise is proved by a test that CI does not skip, and each claim of security.md names its promises.",
        "manifest-places-stood-in": "Each promise against somebody in the threat model is tried by a test that stands where they stand.",
    },
    ("Push notifications", "docs/a2a.md#push-notifications"): {
        "pushes-not-lost": "Each stored change of a task reaches each receiver in order, also after a restart, or is given up with an alert.",
        "pushes-apart": "A receiver that is slow or away delays no task and no other; nobody sees another's, and a revoked key ends its own.",
        "pushes-verified": "A receiver checks by a shared secret of its caller, or by the public key, that a push is of this post room.",
    },
    ("Coding agents", "docs/security.md#a-persons-repository"): {
        "workspace-branch": "What a worker did comes back as a branch of its own; a branch with other commits is never moved.",
        "workspace-git-closed": "Nothing below a person's git directory can be written from inside, in any mode.",
        "workspace-lends-objects-alone": "A worker is lent nothing of a repository but its objects, of folders that hold nothing else; what lies elsewhere is told.",
        "workspace-objects-checked": "Objects that no git would make do not come back to a person's repository, with any git.",
        "workspace-kept": "What a worker has not committed is on its branch or in its folder when it is removed.",
        "workspace-sync": "A worker is brought up to the newest commit of the branch that it began from with all its work, also what it has not committed; on a conflict it is as it was.",
        "workspace-sync-whole": "A kill while a worker is brought up to date leaves it as before or as after.",
        "workspace-newer-commits": "A worker sees the branch that it began from, and the one that this follows, as they are now, read-only; status says how far both are apart.",
        "workspace-branches": "A worker sees the further branches that patterns name, as they are now, and no other.",
        "workspace-merge-seen": "A merge that an agent made after a conflict is shown beside both sides, and is not applied before its person says that it counts.",
        "workspace-told-once": "A coding agent is told once, in its next turn, that the branch which its work began from has moved.",
        "workspace-merge-undone": "A merge of a worker's branch, and its undo, change no file that a person has not committed; the undo is refused once the branch has moved.",
        "workspace-large": "A file over `workspace.max_file_mb` that a worker has not committed is on no branch until a person lets it in; it stays in the worker's folder, also when the worker is removed, and is named.",
        "workspace-large-named": "Large files in the commits of an agent are named before a merge, also those that a later commit takes away, and so are new binary files.",
        "workspace-persons-own": "Whatever a person and a worker do, spawn, diff and sync change nothing of the person's files, index, refs, stashes and logs, and a merge and its undo what they say.",
        "workspace-submodules": "Submodules whose objects are on the machine come along, and follow a sync; others are said with the command. What a worker does in one stays in its folder and is named, and the person's submodule is not touched.",
        "workspace-submodules-hostile": "A `.gitmodules` leads a worker to no objects but those of the submodule that is at that path, and runs nothing.",
        "workspace-tidy": "`postroom tidy` deletes no commit that nothing else has, and no file that did not come back, without naming it and a word of the person's; branches of workers that are there, also of other post rooms, stay.",
        "workspace-plants-nothing": "No git command of Postroom runs what a worker planted in its folder.",
    },
}
"""Area and source to id to behaviour."""

_MENDS: dict[str, dict[str, str]] = {
    "CHANGELOG.md#fixed": {
        "mend-git-settings": "Git on the host no longer takes a setting, hook or attribute of a repository, so nothing that was planted there runs at a spawn or when work comes back, and nothing but folders of git's objects is lent to a worker.",
    },
    "CHANGELOG.md#2026-11-23": {
        "mend-waiting-action": "An action that waits no longer stops an agent's output.",
        "mend-times-texts": "Times in every answer and in `--json` are RFC 3339 texts, no longer seconds.",
        "mend-logins-shown": "Folders of keys, logins and browsers' profiles (`~/.ssh`, `~/.aws`, `~/.claude`, …), and what has one in it, are no longer shown to a worker, whoever spawns it: neither by `compute.read_only` nor by `--workspace`.",
        "mend-server-hears": "A peer that leaves a stream early, floods, stands still or sends a malformed frame no longer makes a server deaf: one that is given a connection of nats-py opens its own.",
        "mend-closed-repeated": "An agent of other people, or a proxy, that closes without an answer no longer fails a delegated task, nor `postroom a2a` and `A2AClient`: the call goes out again under the same id.",
        "mend-canaries-touched": "Another account of the machine that touches the canaries of the wall test no longer makes spawns and starts fail, nor gets you a weaker wall.",
        "mend-json-nested": "Nested JSON no longer holds up everybody: a message or a request's body has at most 10,000 values (413), counted by its bytes before anything is built of it.",
        "mend-bodies-wait": "One key's large messages no longer keep others waiting: a body has at most 2 MiB (8 MiB with a template) and counts for the key's rate by its bytes and its values, large bodies of one key wait for one another, and streams are opened at a bounded rate.",
        "mend-key-to-port": "After a crash local commands no longer send the operator's key to whatever process has the old process id and port: they ask the lock of the state folder, and speak to a unix socket in it (`control.sock`) whose peer they check.",
        "mend-used-id": "A used `messageId` no longer gets the answer of another question: with other content it is refused, and the error names the task.",
    },
    "CHANGELOG.md#2026-11-22": {
        "mend-disk-counted": "Folders without read permission and deep trees no longer hide from the disk limit.",
        "mend-letters-shared": "Retention deletes all that is over in one run; one worker can no longer fill the dead letters for everybody.",
        "mend-tls-log": "Connections over TLS no longer leave a line of asyncio each in up.log.",
    },
    "a2a/CHANGELOG.md#fixed": {
        "mend-library-hears": "A malformed frame, or a peer that leaves early, floods or never reads, no longer makes a server deaf that was given a connection of nats-py.",
        "mend-flush-given-up": "A flush that is cancelled or times out no longer makes a client on a connection of nats-py deaf.",
    },
}
"""Changelog and section to id to its words."""
# fmt: on

REQUIREMENTS: dict[str, Requirement] = by_id(
    Requirement(id, area, source, behaviour)
    for (area, source), promises in _LISTED.items()
    for id, behaviour in promises.items()  # noqa: A001 (the field's own word)
) | by_id(
    Requirement(id, "Mends", source, words, "mend")
    for source, mends in _MENDS.items()
    for id, words in mends.items()  # noqa: A001 (as above)
)

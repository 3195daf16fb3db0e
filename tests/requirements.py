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
        "bus-ack-means-disk": "A message is accepted only when the server has it on disk; an uncertain answer names the key under which it is stored once, however often it is sent, and nobody can guess or use up the id of another's.",
        "all-kills-counted": "Whatever is killed, the control plane and nats-server too, each accepted message ends once, with its effects once, and what ran goes on by itself.",
        "mail-offline-waits": "A message to a worker that does not run waits for it; one to nobody is refused at once; one to a retired agent, or past its time, is dead with that reason.",
    },
    ("Delivery", "docs/architecture.md#final-states"): {
        "mail-states-forward": "A message ends seen, answered or dead; its state only moves forward, and only who knows it reports it: `delivered` means read by the agent's process, `seen` confirmed by the agent.",
        "mail-content-whole": "Parts with their media types, subject and thread arrive as they were said, in messages, posts, tasks, answers and requeued letters; what a card does not take, or nobody could read, is refused with the part named, before anything is stored.",
        "mail-search-own": "What was said is found by its words, thread or agent, and opened in its place; who searches finds what they may see, and nothing else.",
    },
    ("Delivery", "docs/api.md#inbox"): {
        "inbox-confirmed-only": "What a consumer, an inbox or an agent has not confirmed is given again, in order and flagged, also after a crash; nothing is lost because nobody called.",
    },
    ("Delivery", "docs/architecture.md#streams"): {
        "mail-retention-covered": "Only final records that a verified copy covers are deleted from the log; what you do not keep any more leaves database and log for good, and what is open, or an answer to it, stays.",
    },
    ("Delivery", "docs/architecture.md#dead-letters"): {
        "mail-deadletter-moved": "A delivery that failed for good becomes one dead letter with its reason, and a malformed record stops nothing; a requeued letter is a new message linked to the dead one, which stays dead.",
        "mail-floods-contained": "An agent that floods an inbox, the dead letters or the alerts uses up its own share only; what is too large, or finds a stream full, is refused, and what was accepted is never dropped.",
    },
    ("Delivery", "docs/architecture.md#one-log-one-projection"): {
        "mail-rebuild-equal": "The database is rebuilt from a snapshot and the log behind it, also under older files of it, and shows and owes the same under the same ids; a record that a rule cannot fold is told, kept, and folded by better rules.",
        "backup-restores-all": "A backup of a running post room restores every accepted message and task, or nothing, with its keys encrypted; all rows move from SQLite to PostgreSQL and back, every table compared.",
        "client-stream-resumes": "Who follows messages, tasks, events, announcements or the activity of a project, by any door, gets each record once, in order, across replay, loss and restart; a slow reader is told of a gap.",
    },
    ("Delivery", "docs/howto.md#write-an-agent-of-your-own"): {
        "agent-library": "A program with a key sends, receives, asks, delegates and does tasks in the words of lines and shell; what it has not confirmed comes again, and of what its code never gets people are told.",
    },
    ("Delivery", "docs/architecture.md#sidecar"): {
        "sidecar-message-handed": "A message is handed to the agent and its reply reaches the sender; what a crashed or slow agent has not confirmed comes again or is told to its sender, holds up no other, and has no second effect.",
        "sidecar-lines-survive": "Nothing that an agent prints ends its sidecar or hides its next line; a flood of lines is held back and loses no post.",
    },
    ("The post office", "docs/post-office.md#join"): {
        "join-by-invite": "Who has the link and the code of an invite joins with an address, a key of its own and the scopes of the invite; of many at once as many as it has uses.",
        "join-once": "Who joins again after a lost answer is the same agent with the same key and takes no further use, by a secret of its own that nobody guesses.",
        "join-refused-alike": "Whatever is wrong with an invite or its code, the answer and the work are the same, and after 20 wrong codes the right one counts no more.",
        "join-secrets-kept": "The code of an invite is kept as its digest alone, is shown once, and is in no list and no log; nor is what a joiner's key is made of.",
        "stranger-sees-own": "An agent of open registration sees itself and whom a grant ties to it; every other operation, with whatever reference, answers it as for what does not exist, and no answer has anything of the others.",
        "join-limits": "A key of open registration has 100 requests a minute, for which its large bodies count, and an address without a key has 100; what is more is refused with 429, the seconds to wait, and what to do.",
        "join-open-suffix": "Under open registration each nick gets a suffix, so that taken, reserved and retired names answer alike; only who was invited is told that a name is taken.",
    },
    ("The post office", "docs/operating.md#limits-of-callers"): {
        "post-pair-limits": "To an agent that is reached by grants alone, or is of another organisation, each sender has a rate, each message a size, and what waits a number; what is more is refused with when to come again, and what was sent before under the same key is not.",
    },
    ("The post office", "docs/architecture.md#between-organisations"): {
        "across-both-halves": "People, workers and programs of two organisations write to each other as `@nick.org` where one has let the other in: each organisation has its half of the conversation with files, receipts, threads and answers, in the order in which it was sent.",
        "across-kills": "A message to another organisation is in the log of each once, or refused, whatever is killed between two steps; a repeat under its key is answered; a restart or a rebuild of either sends nothing twice.",
        "across-waits": "A message waits for an organisation that is not open and for an inbox that is full, and people are told; it expires as others do, and is dead with its organisation's removal.",
    },
    ("The post office", "docs/security.md#organisations"): {
        "across-revoking": "Of a thousand sends to another organisation none is taken behind a grant that was taken back, and what was taken before it is carried.",
        "across-ambiguous": "Who is not let in gets one answer about every agent of other organisations, whether it exists or not, however it is named.",
        "across-workers": "A message that a worker stores itself for an agent which has not let it in ends as one to nobody; one that is let in arrives.",
    },
    ("The post office", "docs/a2a.md#callers-of-another-organisation"): {
        "guest-tasks": "Who is let in from another organisation gives an agent tasks with files, at its A2A address or by its own API, follows, answers, cancels and retries them by their ids, and is shown by its address; with the grant end streams, waits and pushes, and what was accepted stays.",
        "nothing-tells": "To a caller of another organisation, also to who operates there, to who came by open registration, and to a member about what is others', each operation of the API answers alike for what is there and for what is not, whatever kind of reference it is given; so do the audit log and the alerts of its side.",
        "guest-learns-nothing": "Who is not let in is answered alike at every A2A method, whatever exists: for nobody, no grant, another scope, an ended grant; of other tasks and agents there a guest learns nothing.",
    },
    ("The post office", "docs/operating.md#retention"): {
        "post-key-once": "One key from one sender to one recipient is one message, however many send it at once and whatever is killed meanwhile; for a year after it was given up a send under its key is refused with the day on which it was sent.",
    },
    ("The post office", "docs/post-office.md#be-told"): {
        "webhooks-tell": "What happens to an agent is told to its webhooks, signed so that Standard Webhooks and the headers `X-A2A-...` prove it, by a former secret too for a day after a rotation; a kill repeats a delivery under its id, and loses none.",
        "webhooks-guarded": "Nothing goes to a URL of this machine, a private network or a cloud's metadata, whatever its name means when it is called; a webhook is its owner's alone, ends with its key, and is disabled when its receiver wants no more.",
        "secrets-sealed": "Secrets of webhooks and push notification configs stand sealed in the database, a restored backup opens them, and of those whose key is lost people are told; nothing goes out unsigned.",
    },
    ("The post office", "docs/api.md#inbox"): {
        "post-sender-told": "Who sent a message that nobody takes is told for how long it waits and why, once for each recipient until it is taken; of an agent people are alerted, too.",
    },
    ("The post office", "docs/security.md#messages-in-the-database"): {
        "post-message-genuine": "A message that somebody has changed in the database is shown to nobody, named by `postroom admin verify` and by an alert, and mended from the log where that still has it; so after a rotation of the key, a restore elsewhere and an update.",
    },
    ("The post office", "docs/messages.md#search"): {
        "mail-expiry-shown": "Sender and recipient see until when a message waits to be seen, in the answer to `send`, in inbox, chat and receipt.",
        "mail-threads": "Each party lists its threads by their last message, with how many are new, whatever was given up or rebuilt meanwhile; what others say in them is not among it.",
        "mail-archive-kept": "What a reader has put away leaves the list of the inbox and nothing else, no sender learns it, and that and how far each has read a feed survives a rebuild and a restore.",
        "mail-search-letters": "A search finds each word in any script, whatever its capitals and accents, the same on both databases, also in what was said before there was an index; no sign in it means anything.",
    },
    ("The post office", "docs/post-office.md#plain-paths"): {
        "plain-paths": "A client of a small server for agents sends, reads its inbox and lets in by `/api/messages`, `/api/inbox` and `/api/authorizations` with the fields of such a server, and these are the operations of the API with their limits and errors.",
    },
    ("The post office", "docs/security.md#what-an-agent-may-not-do-alone"): {
        "acts-by-owner": "What an agent may not do alone is asked of its owner, once however often it is asked for, and done in its name when that is allowed, over SIGKILL; denied, or unanswered for seven days, it is not done, and the agent is told.",
        "acts-of-agents": "A grant, an answer to who asks for one, being reached by all again and a webhook wait for the owner of the session, worker or program that asks, by API, MCP or a worker's door; what is done is for whom it was asked, and taking back waits for nobody.",
        "acts-owner-alone": "Who owns an agent sees exactly what would be done, and alone allows it; no rule, no autonomy, no sidecar and no other key does, and nobody else learns of it without operating.",
    },
    ("Tasks", "docs/architecture.md#tasks"): {
        "task-request-runs-once": "An accepted task is on disk and can be seen at once, or 503 names it and says how to repeat the call; the same request, repeated or twice at a time, is one task that runs once, on one runner.",
        "task-kill-ends-once": "Whatever is killed in mid-task, the task ends once, and the person, or an A2A client over HTTP, finds it and sees every attempt.",
        "task-kill-requester-told": "The requester of a task, a person or an agent, is told each change, in order, whatever is killed meanwhile, and by the control plane alone, from the log: no worker can lie about one.",
        "task-stored-once": "What is stored of a task grows with what is said of it, and no record repeats the whole task; an artifact of any size is given by reference, in bounded memory.",
        "task-queue-keeps-order": "A worker does its tasks in the order of their requests, and stopping it fails none; a canceled one never begins, or its agent is interrupted, and killed after a grace.",
        "task-answer-resumes": "A question raises one alert; the answer that was stored first resumes the same task, and one to a stopped worker is taken once and said to wait for its start.",
        "task-seen-by-parties": "On the bus only its worker and its requester know a task, and only the requester cancels and answers it; a task shows over what it was asked for, whatever it claims.",
        "task-retry": "A task that is not offered is rejected, and one that nobody will run, or that was begun as often as its template says, has failed, with the reason; asked for again it is a new task with the same message, once however many ask.",
        "task-waiters-end": "Who waits for a task reads nothing meanwhile and is answered at its end or the deadline; ten thousand may wait for up to an hour, below 20 kB each, and leave nothing behind.",
        "task-skill-chosen": "The directory answers who an agent is, whether it is there and what it can do, whatever its kind; a task for a skill goes to one that has it: online first, then the one with the least to do.",
    },
    ("Tasks", "docs/howto.md#an-agent-that-postroom-does-not-run"): {
        "outside-takes-tasks": "An agent with a key and plain HTTP gives and takes tasks, asks, answers, ends them once, and is canceled.",
    },
    ("Tasks", "docs/architecture.md#blobs"): {
        "blob-kept-by-hash": "An upload is kept once under its SHA-256, and of one that failed nothing is left; only its uploader, the operator and those whom a reader has named it can read a blob.",
    },
    ("Identity", "docs/architecture.md#identity-and-trust"): {
        "identity-sender-proved": "The subject proves the sender, whatever the payload says; nobody can publish on another's subject, no receiver stores or believes a forged reply, and nobody publishes to a place to which a request steers it.",
        "identity-inbox-private": "An agent reads nothing that is for another, and the feeds of its own projects only; no signing key can mint it wider rights.",
        "identity-keys-private": "Keys, credentials, sockets, state and audit log are closed to other users, and local commands send the operator's key to a process of its owner alone, also after the post room was killed.",
        "owner-way-in": "The owner gets in while strangers hold every connection, and a valid key while they guess keys; beyond its limit the API answers 503, serves the others, and keeps those that have shown a valid key longest.",
        "directory-name-unique": "Equal, look-alike, reserved and uid-like names are refused, and a uid is never given twice.",
        "api-key-required": "The API requires a key and its own host name, a worker's routes the worker's own door; no web page, proxy, route, path, header or framing makes a request another's.",
        "key-scopes-demanded": "A key does what its scopes allow and no more, and makes, at a bounded rate, no key that may more or lives longer; once it is revoked, replaced or expired, it opens nothing, and what it had opened has ended.",
        "key-sees-own-alone": "Nothing of another person, or of another organisation, is in any answer to who may not see it: it looks as if it were not there.",
        "text-controls-stripped": "No text of an agent acts on a terminal, forges a line or a second message, is wider than its place, or opens a link unasked, in lines, `attach` and the screen.",
        "file-names-harmless": "A file keeps the folder that it is saved into and replaces none unasked, whatever name an agent gave it.",
    },
    ("Identity", "docs/security.md#revocation-and-rotation"): {
        "identity-revocation-everywhere": "Nobody connects or stays connected without a valid credential: every server cuts a revoked agent within 2 s, and one that has not confirmed it is named and told again; nobody else is disturbed.",
        "identity-rotation-seamless": "Credentials are renewed, and the keys of agents, gateway and operator replaced, under load: nothing is lost or doubled, and no call fails.",
    },
    ("Identity", "docs/security.md#organisations"): {
        "org-no-subject-crosses": "Nothing crosses between organisations, on the bus, over the API or in any database; to an agent, what belongs to others looks as if it did not exist.",
        "org-create-whole": "An organisation is whole or absent; when it is removed its credentials end; when it fails it stops no other.",
    },
    ("Identity", "docs/security.md#tls"): {
        "tls-beyond-loopback": "Beyond loopback nothing starts without a fitting certificate, and nothing can be read, not even a greeting; a client trusts the authority that it is told of alone, and sends nothing, a login's key least of all, to a server without it.",
        "tls-local-authority": "The local authority vouches for the names that it was made for and no others; a certificate is renewed in time, cuts no open connection, and its end is announced 21, 7 and 1 days before.",
    },
    ("Walls", "docs/architecture.md#the-two-walls"): {
        "sandbox-canary-unreachable": "From inside a sandbox nothing but the gateway can be reached; a reachable canary behind an enforced wall ends the worker before its agent runs.",
        "sandbox-partial-stated": "A partial wall holds except for the holes that it states; it, and a limit that this machine cannot keep, are shown wherever the worker is.",
        "sandbox-kernel-files-closed": "What the kernel shows to root alone, its settings, new namespaces, all but four socket families, and set-user-ID bits and capabilities of files are closed, or stated where they cannot be.",
        "sandbox-select-failclosed": "A wall that does not hold is an error with a remedy, never a lesser wall, and no template can ask for a weaker one than a person has allowed; the worker starts by itself when there is one.",
        "sandbox-stranger-unbelieved": "Another account that touches or floods the canaries neither fails the test of a wall nor hides that one leaks.",
        "wall-sidecar-closed": "An agent can read neither its sidecar's memory and secrets nor the post room's keys, nor have it run code; nothing outside the writable folders can be written, directly, by a link or through the sidecar.",
        "never-shown": "Of the machine a worker of a lesser key has nothing but what the operator has opened for it; no worker is shown, by any name, link or template, a folder of keys, logins or profiles, the post room's own, or /proc and /sys.",
        "wall-dies-with-post-room": "When the post room is killed, its server and every process of its workers end.",
        "inward-socket-itself": "When the control plane asks a worker itself, it follows no link, bounds and checks the answer, and delays nobody.",
    },
    ("Walls", "docs/security.md#limits"): {
        "limit-exceeded-ended": "A worker beyond its memory, processes, disk or time is ended, can hide nothing from the count, and an alert names the limit; only a person starts it again.",
    },
    ("Walls", "docs/operating.md#workers-on-opensandbox"): {
        "opensandbox-lifecycle": "A worker on an OpenSandbox server has a wall that holds, leaves neither sandbox nor secret there, and comes in by its own door, with TLS only.",
    },
    ("Gateway", "docs/security.md#against-an-agent-gone-bad"): {
        "attack-publish-refused": "No publish, subscription or header outside its rights gets an agent anything, by the server alone too, and each is in the audit log.",
        "attack-flood-slowed": "Floods and odd messages of one agent are slowed down or refused, and told, while all others are served; too many violations cut a worker off until its next start.",
    },
    ("Gateway", "docs/security.md#nats-through-the-door"): {
        "gateway-nats-proof": "A worker's credential and token are worth nothing but at the worker's own open door, with the gateway's signature; a wrong one gets no answer and is recorded.",
        "gateway-nats-no-smuggling": "A real server hears only what the gateway has allowed and recorded, however the bytes are cut or spelled, and no greeting tells an address of the bus.",
    },
    ("Gateway", "docs/security.md#egress"): {
        "egress-address-guarded": "The gateway, and the post room for its A2A client, connect to public addresses and to what the operator opened, by no other spelling, and write each request anew, without framing that two could read differently.",
        "egress-refused-told": "A request to a host that the template names leaves over verified TLS; a refusal, at the spawn too, names what opens it.",
        "egress-key-outside": "A credential is added where it is bound and named, and nowhere else; a worker uses a key that is in no sandbox, argument, answer, log, record or listing.",
    },
    ("Audit", "docs/security.md#the-audit-log"): {
        "audit-recorded-first": "What passes a door is recorded before it passes, and what cannot be recorded does not pass, or is counted in lossy mode; a full disk is one alert and heals by itself.",
        "audit-acts-explained": "Each act of a worker, and whatever somebody changes over the API, is in the audit log with its cause, its agent and its key, without a token and without what was said.",
        "audit-once-in-order": "Every record, those of the servers and the copy in the organisation's stream too, is found and followed once and in order, whatever is killed, rotated or torn; no agent can reach it.",
    },
    ("Coding agents", "docs/architecture.md#adapters-and-turns"): {
        "coding-turns": "A coding agent takes messages, posts and tasks as turns, one after the other in one session, told who else is there; its last words are the answer, and a message counts as seen only by its turn's result.",
        "coding-session-survives-sigkill": "After SIGKILL of the agent or of its sidecar in mid-turn the same work goes on in the same session, or the agent is told; its past does not become events again.",
        "coding-bounds-hold": "Tokens and cost are counted per worker and task; a turn over its limit is ended, by force if need be, an agent without a sign of life counts as stalled, and a spent budget refuses tasks, also over restarts, until a person raises it.",
        "coding-policy-no-shell-tricks": "A pattern with an argument allows no shell command, path or URL but those that it plainly names, however they are spelled or hidden among several fields; any other form is asked.",
        "failing-last-word": "The newest error of an agent, and what it prints that cannot be read, is its last word in `status`, on the screen and in `task show`; a credential that its host refuses is one alert with the command that mends it.",
        "agents-real": "Claude Code, Codex, Gemini CLI and OpenCode themselves, pinned, answer, ask, are denied, interrupted and killed in their sandboxes, and never have the model's key.",
    },
    ("Coding agents", "docs/architecture.md#events"): {
        "events-folded-once": "Each event of a worker's agent becomes one row under one id, whatever is killed, away, batched or reported twice; what was known is skipped and counts against no share.",
    },
    ("Coding agents", "docs/architecture.md#watching-and-answering"): {
        "attach-shows-all-kinds": "Attached to a worker, waiting for its task or in the screen one sees what its agent does as it does it, whole from any event on, whatever the width; a script sees the task alone.",
    },
    ("Coding agents", "docs/architecture.md#terminals"): {
        "terminal-one-at-a-time": "A worker has one open terminal at a time, in its sandbox, behind the gateway and in the audit log; it ends with its shell, its person, its worker and the post room, and says why.",
    },
    ("Coding agents", "docs/coding-agents.md#what-postroom-finds-by-itself"): {
        "template-programs-found": "`postroom spawn claude-code` finds an installed coding agent, shows its sandbox only what it needs of the machine, and a task for it is done; `doctor` says what machine and template lack, each with what mends it.",
        "mcp-servers-reach-agents": "An MCP server of a template is in the coding agent's own configuration or session, runs in the sandbox or is reached through the gateway with its credential; one that the agent cannot have is said.",
    },
    ("Coding agents", "docs/adapters.md#the-agent-client-protocol"): {
        "acp-permission-by-kind": "A question is answered by the kind of an option, never by its id or place; an edited input is a denial, and an interrupt answers every open one `cancelled`.",
    },
    ("Coding agents", "docs/adapters.md#your-own-adapter"): {
        "adapter-of-another-package": "A package brings an adapter by an entry point; an adapter that no package has is refused with those that there are.",
    },
    ("Workspaces", "docs/security.md#a-persons-repository"): {
        "workspace-branch": "What a worker did comes back as a branch of its own, what it has not committed too when it is removed; no branch with other commits is moved, and nothing that nobody else has is deleted without a word of the person's.",
        "workspace-git-closed": "Nothing below a person's git directory can be written from inside, in any mode, and no git command of Postroom runs what a worker planted.",
        "workspace-lends-objects-alone": "A worker is lent nothing of a repository, or of its submodules, but their objects, and follows them; objects that no git would make do not come back, and the person's submodule is not touched.",
        "workspace-sync": "A worker sees the branches that it began from and that patterns name, is told once that they moved, and is brought up to the newest commit with all its work, or stays as it was on a conflict or a kill.",
        "workspace-merge-undone": "A merge brings exactly what was shown, and its undo takes it back; neither, nor a spawn, diff or sync, changes anything else of the person's.",
        "workspace-large": "A file over `workspace.max_file_mb` is on no branch until a person lets it in; large files in an agent's commits, and new binary ones, are named before a merge.",
        "screen-review": "Files of a diff are marked as seen as long as their change is the same, comments go to the agent as one message with places, and a file opens whole in the editor; both outlive the screen.",
    },
    ("Approvals", "docs/architecture.md#approvals"): {
        "approval-one-object": "What an agent asks before it acts is one durable object with all that it says, over restarts and rebuilds; its answer is used once, by the request that it was given for.",
        "approval-first-answer-wins": "Of all answers to an approval the first in the log counts; it is stored before it is said to be, and the others are told by whom, also in an open dialog.",
        "approval-person-unforgeable": "Only who calls the API with a key can be named as who decided, never what a worker reports; the commands that decide refuse inside a worker.",
        "approval-shown-decided": "What is allowed is what was shown, whole, at any size of the terminal, with a name for each character that hides; no later request takes its place or its short id.",
        "approval-never-hangs": "A pending approval is an alert and stands first in `status`, in one order wherever it is listed; unanswered it expires with its default, and one that nobody waits for is withdrawn, also over restarts.",
        "attach-answers": "What an agent asks is answered where it is shown, by a person at a terminal alone, and by no key that was meant for something else.",
    },
    ("Approvals", "docs/coding-agents.md#always-for-this-tool"): {
        "policy-added-at-once": "A pattern that a person adds for one worker, at any door, with the PIN, counts at once, for what waits too, over restarts, and never above what the template denies or for more than what is proposed; who added it is shown.",
    },
    ("Approvals", "docs/coding-agents.md#let-it-work"): {
        "autonomy-set": "Who may approve sets how much a worker does unasked (`ask`, `edits` in its folder, `all`), also until a task ends; it is kept over SIGKILL, shown with who has set it, and never above what the template denies.",
    },
    ("Approvals", "docs/security.md#approvals-and-pins"): {
        "approval-pin-demanded": "Once a person has set a PIN, no decision, spawn, template or wider key in their name counts without it; wrong tries are few, also over restarts.",
        "approval-edit-plain": "What a person edits is the command or the new text of the file, as JSON with escapes where characters do not show; where the agent's protocol has no place for it, none can be given.",
    },
    ("Screen", "docs/terminal.md#open-it"): {
        "one-word-starts": "`postroom` at a terminal, and `spawn`, start one post room if none runs, however many ask for it, and say so; never in a pipe or in continuous integration.",
        "one-word-offers": "In a repository `postroom` offers a worker of its own in one dialog; from an empty home, a task and at most 12 keys lead to the merged change of a real coding agent.",
        "screen-opens": "In a terminal `postroom`, chat, attach and approvals open the screen on what they name; in a pipe or with --no-tui they print lines; leaving it waits for no answer, and a failure of the screen leaves one line, and the details in a file.",
    },
    ("Screen", "docs/terminal.md#what-a-worker-does"): {
        "screen-task-tree": "From any task one sees its tree: who gave it, up to the first requester, and all that came of it.",
    },
    ("Screen", "docs/terminal.md#when-you-look-elsewhere"): {
        "screen-calls": "A message counts as seen once it is before the eyes of the person; something new that needs them rings a bell or is a desktop notification, at most once in five seconds and not while they look.",
    },
    ("Screen", "docs/terminal.md#reading"): {
        "screen-scrollback": "A log keeps 100,000 rows with agents' text drawn as what it is and nothing hidden or loaded, and stays where it is while one reads above; folding, search, copy and links work by key and mouse.",
    },
    ("Screen", "docs/terminal.md#feeds-and-conversations"): {
        "screen-said-once": "What one sends shows at once, goes once and shows what came of it, over restarts; what could not be sent stands in the line again, with why.",
    },
    ("Screen", "docs/terminal.md#type"): {
        "screen-types-operating": "`/apply`, `/policy` and `/alerts` in the line merge, show and change what a worker does unasked, and show and clear what went wrong.",
    },
    ("Screen", "docs/terminal.md#rooms"): {
        "screen-state-fresh": "What needs a person stands first and follows what happens without polling, also after the post room was away; names stand as people count, `/` filters them, and acts take all that is marked after one question.",
    },
    ("A2A", "docs/a2a.md#what-holds"): {
        "a2a-http": "Any A2A client with a key, the SDK's own too, reaches any agent over JSON-RPC, REST and gRPC with the same operations, rights and errors, by the rules that the official kit checks.",
        "a2a-http-versions": "Clients of A2A 0.3 and 1.0, and peers of the wire `a2a-nats/1` in TypeScript, have the same tasks; the translation loses nothing that 0.3 has a place for.",
        "a2a-parts-pass": "Parts of every kind, with metadata that nobody here knows, and artifacts of 20 MB pass unchanged, in every version and encoding.",
    },
    ("A2A", "docs/a2a.md#the-card"): {
        "a2a-http-card": "An agent's card is in the registry while it is online, over HTTP too, and is signed: a changed one does not verify, one that claims another's name or URL is refused, and without a key only a public one is shown.",
    },
    ("A2A", "docs/a2a.md#push-notifications"): {
        "pushes-not-lost": "Each stored change of a task reaches each receiver in order, also after a restart, or is given up with an alert; no receiver delays another or sees its pushes, and each can check that a push is of this post room.",
    },
    ("A2A", "docs/architecture.md#local-api"): {
        "a2a-client-speaks": "The A2A client, and `postroom a2a` by hand, send, stream, answer, cancel and list at any A2A server; a call is repeated with the same message id within its deadline, and never after a 4xx.",
        "remote-tasks": "A task for an agent of other people goes to its A2A server, is one task there whatever is killed here, and what is said of that task alone comes back; of one that is dead, forgets it, breaks A2A or is late it fails with the reason.",
    },
    ("A2A", "docs/binding.md#durable-requests"): {
        "binding-durable-begun-once": "A stored request is begun once and ended once, whatever is killed, on bounded streams that all makers share; a client gets only answers to its own calls.",
    },
    ("A2A", "docs/binding.md#operations"): {
        "core-sdk-client": "The SDK's client and an unchanged executor work over NATS and JetStream by the rules of the SDK's own handler; nothing is written over the end of a task, and an error keeps code, message and data.",
    },
    ("A2A", "docs/binding.md#replicas"): {
        "replicas-one-runner": "Of several processes that serve an agent one runs a task: follow-ups, cancels and repeats reach it, and no task outlives it at work.",
    },
    ("A2A", "docs/binding.md#limits"): {
        "core-busy-told": "A call too many waits a moment and is refused, while others and cancels get through; a slow reader costs the server no memory, a call past its deadline is not begun, and a server that ends finishes or answers what it has.",
        "core-never-deaf": "No peer makes a server or client deaf: malformed frames, floods, early leavers and outages cost no subscription, and messages come in order, each once, in bounded memory.",
    },
    ("Command line", "docs/architecture.md#command-line"): {
        "cli-errors-one-line": "An error is one line with its remedy, and Ctrl-C and a closed pipe leave no traceback; the exit status tells what kind of error it was, and how a message, a task or the worst of several workers ended.",
        "login-names-the-room": "What is typed says which post room a command is for, else the environment, else the login of its user, never a program's; with a key and TLS people and agents of another machine use it, each as themself.",
        "cli-words-expected": "The help has its commands in groups; a nick, a setting or a command that is nearly one is named; every command that answers takes `--json`.",
        "cli-send-waits-answered": "`send` and `delegate` print an id that is on disk, and with `--wait` the answer alone on the output.",
        "cli-status-attention": "`status` shows first what waits for a person, and the commits that command and post room were made from; `watch` and `logs` miss nothing, also across restarts.",
    },
    ("Command line", "docs/architecture.md#templates"): {
        "worker-spawn-all-or-nothing": "A template is checked whole before anything is made of it; a worker is in the directory with all that starts it, or leaves nothing, and `spawn` says when its agent ends at once, with its last words.",
        "worker-restart-reloads": "A restart takes template and files anew, and keeps uid, inbox and open tasks; only a person's word removes a worker with open tasks, or what it left on disk; a fault of one start or end ends no other worker.",
    },
    ("Operation", "docs/architecture.md#background-work"): {
        "background-supervised": "Background work outlives faults of database, bus and disk, and servers that go and come back; people are told once while some fails, and only what is declared fatal ends anything.",
    },
    ("Operation", "docs/architecture.md#embedded-server"): {
        "disk-full-refused": "On a full disk messages and starts are refused, nothing that runs ends, and `status` and the screen say so; with space it goes on by itself.",
        "state-lock-exclusive": "However a post room is started (systemd, launchd, nohup, blocked signals, umask 000), it is alone on its folder, its agents have default signals, its files are private, and it ends when told.",
    },
    ("Operation", "docs/architecture.md#http-api"): {
        "api-as-described": "The OpenAPI document says of every route its scope, parameters, bodies, answers and errors; no answer has a form or a status that it does not describe, and no request that it allows makes a 5xx.",
        "http-readyz-truthful": "`/livez` answers before the API is open, `/readyz` says whether it is, and what is away of database and bus.",
    },
    ("Operation", "docs/operating.md#settings"): {
        "settings-precedence": "A setting comes from a flag, else the environment, else a file; an impossible value is refused, `config set` changes one and leaves every other line, and no secret is printed, or taken from where others can read it.",
    },
    ("Operation", "docs/operating.md#limits-of-callers"): {
        "json-bounded": "JSON that is too deep, has too many values or half a character is refused before anything is built of it, at every door, on the bus too.",
        "caller-limits": "No caller gets more than its burst, its rate and its open tasks, by bytes and values of bodies, streams and WebSockets too; who is over gets 429 and when to come again, before its body is read.",
    },
    ("Operation", "docs/operating.md#metrics-and-traces"): {
        "metrics-true": "`/metrics` agrees with what happened, names nobody in a label, and is for the operator and who operates; dashboard and alert rules name only what it exports.",
        "traces-one": "What a caller asks for, and what its workers delegate for it, is one trace of few spans; without OpenTelemetry it costs nothing.",
    },
    ("Operation", "docs/operating.md#running-on-your-own-nats"): {
        "nats-unfit-refused": "Servers that are too old, lose what they acknowledge, lack something or are another bus than the log's are refused with a remedy; `postroom nats config` prints what they need, and no private key.",
        "nats-node-death-keeps-accepted": "When one of three servers dies or is cut off, nothing accepted is lost and the post room goes on with the others.",
    },
    ("Operation", "docs/operating.md#running-on-your-own-postgresql"): {
        "postgres-outage-survived": "PostgreSQL may be killed and started again while messages flow: nothing is lost; a start waits for one that is just coming up, and what no waiting mends ends it at once.",
        "store-contract-kept": "SQLite, PostgreSQL and SurrealDB keep the same rules, over crashes and against a second writer too: what belongs together is stored together, and a page of a long list costs hardly more than one of a short.",
        "store-older-refused": "State, backups and databases of an earlier version are brought up to date, SQLite's files copied before; those from before the first migration that is kept are refused with the commit that does it.",
    },
    ("Operation", "docs/api.md#alerts"): {
        "alerts-cause-once": "What happens again is the same alert; it ends with its cause, and a cleared one stays cleared.",
    },
    ("Sessions", "docs/api.md#sessions"): {
        "session-is-agent": "A session in a person's terminal is one agent with one key, however often its client registers it; renamed or resumed it keeps its uid and its mail, and its former keys open nothing. A new one has the name of one that is gone and that nobody waits for.",
        "session-owner-alone": "Only a person registers sessions; a session's key has no more than its owner's and never operates or administers, nobody else speaks for it or learns its folder, and it ends with its owner.",
        "session-ends-unheard": "A session that ends, or was not heard for 7 days, has no key left, and what waited for it is a dead letter.",
        "session-mail-told": "One stream brings the mail of all sessions of a person, and what becomes of it; a receipt says how it was delivered, and a sender is told at once where a session does not get it by itself.",
    },
    ("Sessions", "docs/architecture.md#sessions-in-peoples-terminals"): {
        "session-mail-proven": "Mail that a hook, a wake or a tool hands to a session is `delivered` when its client took it, and `seen` only by what cannot come before a model request made after that; what is not proven is given back, and said again under the same id as a repetition.",
        "session-kills-harmless": "Client, hook, MCP server, `postroom connect run` or control plane may be killed at any moment: no mail of a session is lost or out of order, none is shown twice without saying so, and no receipt lies.",
        "session-hook-harmless": "A hook takes at most 25 ms of CPU, is silent and ends 0 whatever is missing, down or full, does nothing in a worker or where nobody watches, and no key is in anything that it, its server or their client can read.",
        "session-woken-rightly": "Mail of its owner, of the owner's sessions and answers make a session go on or wake it, by its client's own way and so often at most; that of others waits for the next activity unless it is let in.",
        "session-hands-over": "A task given to a session comes as mail, and so do the answer to what it asks and a cancel; of a task that it gave it gets end, question and result as mail, with the branch that has the work: each once, whatever is killed.",
        "session-text-framed": "In a model's context mail has its proven sender and stands behind bars: nothing in it passes for another sender, the user or the client, it is bounded, and hooks and tools show it alike.",
    },
    ("Sessions", "docs/mcp.md#what-holds"): {
        "mcp-same-operation": "A tool of MCP is done by the operations of the API, as its caller and nobody else, with the same rights, limits and records; a revoked key ends it, and what others wrote does not leave its bars.",
        "mcp-tools-short": "Clients of MCP of both generations get the tools that the table of operations makes, which take at most 2,500 tokens of a model, and in a worker the same tools are its verbs; nothing of it is loaded before it is called.",
        "mcp-key-by-code": "No key is in an argument or a result of a tool: who asks for one gets a code that counts once, for five minutes and for the agent's owner alone.",
    },
    ("Sessions", "docs/clients.md#what-a-session-asks-you"): {
        "session-approval-owner": "What a session asks at its terminal is asked as an approval where its person has switched that on: only its owner allows it, with a PIN, and never a key of a session or a worker.",
    },
    ("Sessions", "docs/clients.md#what-is-written"): {
        "connect-bytes-come-back": "`connect` shows what it writes, all of it or nothing, and no key is in it; `disconnect` gives a file that nobody else has changed its bytes back, and cuts from another one Postroom's part alone.",
        "connect-doctor-tells": "`doctor connect` says for every home what stands between a session and its mail: files, approval, settings, an untried version, no post room.",
    },
    ("Sessions", "docs/clients.md#what-each-client-can-do"): {
        "session-clients-real": "In Claude Code and Codex themselves, in terminals, mail is in the next model request in mid-turn, makes a turn go on at its end and wakes an idle session; one asks the other and goes on with its answer.",
    },
    ("Installation", "docs/binding.md#installation"): {
        "release-versions-agree": "A release builds Postroom and the library, only if tag, projects and changelog state one version; the library alone has every public name, declares what it imports, and passes its tests without Postroom.",
    },
    ("Installation", "CONTRIBUTING.md#dependencies"): {
        "install-by-hash": "The install that the README shows takes exactly what is tested, by hash; each third-party import belongs to a pinned dependency with bounds, and no file names a registry or a machine.",
        "package-footprint-bounded": "The base install and an idle sidecar stay under their stated sizes; server, sidecar and start of a post room load neither the A2A SDK nor protobuf.",
        "docs-commands-run": "Each command, template and program that the documents show works as it stands; `make demo` exits 0 if its task was completed, leaves nothing behind, and in a terminal opens the screen.",
    },
    ("Installation", "CONTRIBUTING.md#promises"): {
        "manifest-promises-tested": "Each promise is proved by a test that CI does not skip, and each one of security.md against somebody by a test that stands where they stand.",
    },
    ("The post office", "docs/post-office.md#grants"): {
        "grant-given-listed": "Who lets an agent in, of another organisation too, names it and for what; both sides see that, and until when.",
        "grant-tells-nothing": "Letting in, asking and taking back are answered the same whether there is an agent of another organisation or not.",
        "grant-asked-answered-once": "Who asks to be let in is one request a pair, and its first answer counts; a second one is told who gave that.",
        "grant-only-everywhere": "Who is reached by grants alone gets nothing else, from programs and from workers, which send by themselves, nor over a restart; what it has asked is answered.",
        "grant-revoke-counts": "Nothing is stored behind a revoke that has returned, and what was accepted before is delivered.",
        "grant-ends-with-its-people": "A grant ends with the agent that gave it or that it lets in, and with the person who gave it, also for an agent that belongs to somebody else now.",
        "grant-own-right": "People and programs with the scope `grant` let others in; taking a grant back needs no more than to be who gave it, or who owns that agent.",
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

"""The manifest of promises: everything Postroom says it does, each with its source.

A test that proves a promise carries `@pytest.mark.requirement("<id>")`. `tests/manifest` holds both sides
together: a promise without a test fails, and so does a mark that names no promise. `docs/promises.md` is
written from this file (`python -m tools.promises`).

An id has the form `area-noun-verb`; its first word is the heading under which docs/promises.md lists it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

ID_PATTERN = re.compile(r"[a-z0-9]+(-[a-z0-9]+)+")
# A heading of one of our documents, or the name of a published specification with its place.
SOURCE_PATTERN = re.compile(
    r"[\w./-]+\.md#[\w-]+|(RFC \d+|A2A|MCP|ACP|NATS|XDG|NO_COLOR|Standard Webhooks)( .+)?"
)


@dataclass(frozen=True)
class Requirement:
    """One promise: a stable id, where it comes from, and the behaviour in one sentence."""

    id: str
    source: str
    behaviour: str

    def __post_init__(self) -> None:
        if not ID_PATTERN.fullmatch(self.id):
            raise ValueError(f"{self.id!r} does not have the form area-noun-verb")
        if not SOURCE_PATTERN.fullmatch(self.source):
            raise ValueError(
                f"{self.id}: {self.source!r} names no document heading or specification"
            )
        if not self.behaviour.endswith("."):
            raise ValueError(f"{self.id}: the behaviour is a sentence and ends with a full stop")

    @property
    def area(self) -> str:
        """The first word of the id."""
        return self.id.partition("-")[0]


def by_id(requirements: Iterable[Requirement]) -> dict[str, Requirement]:
    """Index the promises; the same id twice raises ValueError."""
    index: dict[str, Requirement] = {}
    for requirement in requirements:
        if requirement.id in index:
            raise ValueError(f"{requirement.id} is listed twice")
        index[requirement.id] = requirement
    return index


# fmt: off
_LISTED: dict[str, dict[str, str]] = {
    "CONTRIBUTING.md#promises": {
        "manifest-marks-known": "A test can only be marked with a promise that the manifest lists.",
        "manifest-promises-tested": "Each promise of the manifest is proved by at least one test.",
        "manifest-sources-exist": "Each heading that a promise names as its source exists.",
        "manifest-document-current": "docs/promises.md lists the promises of the manifest, no more and no fewer.",
        "manifest-skips-refused": "In CI a skipped test of a promise fails the run.",
    },
    "CONTRIBUTING.md#dependencies": {
        "repo-registry-unnamed": "No file names the address of a package registry; the installing client chooses it.",
        "repo-machine-unnamed": "No file names a folder of the machine that it was written on.",
        "package-imports-declared": "Each third-party module that the source imports belongs to a declared dependency.",
        "package-bounds-stated": "Each dependency has a lower and an upper bound.",
        "package-lock-current": "The pinned versions satisfy pyproject.toml, and base and dev pin the same ones.",
        "package-footprint-bounded": "The base install stays under 75 packages and 180 MB.",
    },
    "docs/architecture.md#tasks": {
        "task-visible-at-once": "A request is a task as soon as it is folded, whether or not its worker is there.",
        "task-only-the-chain": "Of what a worker stores only the next link of a chain counts, and none behind the end.",
        "task-fold-order": "A task is folded behind its request, so the same log gives the same tasks.",
        "task-update-told": "Who asked for a task is told what the log says of it, and of no other.",
        "task-receipts-follow": "A request is seen when its task is taken, and answered when it has ended.",
        "task-question-alerts": "A question raises one alert, with the way to answer it.",
        "task-hopeless-ended": "A task that nobody will ever run ends, with the reason.",
        "task-retention-covered": "Records of a task leave the log when it is final and a verified copy covers it.",
        "task-dead-priority": "An answer or an end that its worker never took is a dead letter; an update is not.",
        "task-records-chain": "Each record of a task names the one that it follows, and the server stores no other.",
        "task-request-runs-once": "The same message id of the same sender is the same task, and it runs once.",
        "task-queue-keeps-order": "A worker does its tasks in the order of their requests.",
        "task-attempts-visible": "A task whose runner is gone is begun again, and its records show every attempt.",
        "task-survives-restart": "A later start of a worker takes over what an earlier one has left.",
        "task-one-runner": "Of two runners of one task only one can write its records; the other stops.",
        "task-cancel-interrupts": "Canceling a task interrupts the agent that works on it.",
        "task-answer-resumes": "Answering a question resumes the same task.",
        "task-refused-when-not-offered": "Work that a worker's card does not offer is rejected, with the reason.",
        "worker-uplink-alone": "A worker whose template has no [sidecar] has card, inbox and tasks, but no events.",
        "task-skill-delegated-once": "What is delegated by skill again under one key goes to the same agent again.",
        "task-reaches-agent": "A task is handed to the worker's agent, and what it says of it is stored.",
        "task-cancel-kills": "An agent that does not stop working on a canceled task within its grace is killed.",
        "task-agent-delegates": "An agent asks another for a task, and is told what became of it.",
        "task-news-from-log-only": "An agent is told of tasks by the control plane alone, which reads the log.",
        "task-write-survives-server-kill": "A record of a task is stored once, though the server is killed meanwhile.",
        "client-task-repeats-once": "A task that is asked for again has the same key; an answer is given once.",
        "client-task-followed": "A task is followed to its end across a lost connection, with no duplicates.",
        "cli-delegate-accepted": "`delegate` prints the task's id when it is on disk, and says who has it.",
        "cli-delegate-result-piped": "`delegate --wait` shows progress beside, and the result alone on the output.",
        "cli-task-outcome-status": "The exit status tells how a task ended, or that it goes on.",
        "cli-task-json-lines": "With `--json` each change of a task is one line of JSON.",
        "cli-task-answered": "`task answer` answers the question of a task.",
        "cli-status-attention": "`status` shows first which tasks wait for the person, then what each worker does.",
        "task-kill-ends-once":
            "Whatever is killed in mid-task, the task ends once, and the person sees every attempt.",
        "task-kill-requester-told":
            "A worker that asked for a task learns what became of it, whatever is killed meanwhile.",
        "task-lease-free": "A start of a worker takes over only what no living start holds.",
        "task-open-fresh": "What a start is told of its tasks is what the log says at that moment.",
        "task-seen-by-parties": "On the bus a task is known to its worker and its requester, and to nobody else.",
        "task-changes-told": "The parties of a task are told each change that is stored of it, in order.",
        "task-cancel-by-requester": "On the bus who asked for a task may cancel and answer it, and nobody else.",
        "task-cancel-told": "The worker that works on a task is told to end it, also one that begins in that moment.",
        "task-cancel-offline": "A task that nobody works on is canceled at once, and never begins.",
        "task-answer-stored": "An answer is stored for the worker that asked, whether it runs or not.",
        "sdk-executors-unchanged": "An executor of the A2A SDK works by our engine as by the SDK's own.",
        "sdk-event-stored-first": "What an executor of the SDK enqueues is stored when the call returns.",
        "sdk-answer-resumes": "An answer runs an executor of the SDK again, with its question, in its context.",
        "sdk-cancel-reaches-executor": "A cancel is told to an executor of the SDK and ends its work.",
        "sdk-cancel-bounded": "An executor of the SDK that will not end holds up nobody.",
        "sdk-exception-fails": "An exception of an executor fails the task, with its text, and is not tried again.",
        "sdk-late-events-dropped": "What an executor says after the end is dropped, and the next task is done.",
        "sdk-foreign-events-refused": "An event of another task, or of none, is refused.",
        "sdk-crash-runs-again": "When its worker died an executor runs again, and the task ends once.",
        "sdk-server-kill-survived": "A kill of the bus in mid-task loses and doubles nothing that an executor said.",
        "sdk-same-message-runs-once": "The same message of the same A2A client is the same task.",
        "sdk-offline-waits": "A task that an A2A client gives an absent worker is done when it is there.",
        "sdk-subscriber-follows": "A subscriber sees the task, then every change up to its end.",
        "sdk-tasks-private": "Another's task looks to an A2A client as if it did not exist.",
        "sdk-tasks-listed": "An A2A client lists its tasks in pages, newest first, by context, state and time.",
        "sdk-not-at-start": "The start of a post room does not wait for the A2A SDK.",
        "sdk-not-in-sidecar": "The sidecar loads neither the A2A SDK nor protobuf.",
    },
    "docs/architecture.md#what-it-does": {
        "text-controls-stripped": "Control and bidirectional characters are stripped before display.",
        "worker-kill-catches-up":
            "A worker killed while messages arrive catches up: nothing is missing, nothing has a second effect.",
        "all-kills-counted": "Whatever is killed, each accepted message ends once, with its effects once.",
        "spawn-kill-leaves-whole": "A worker is in the directory with all that starts it, or not at all.",
        "control-kill-keeps-all":
            "After SIGKILL of the control plane workers, inboxes, receipts and feeds are still there.",
        "server-kill-recovers": "After SIGKILL of nats-server messages flow again by themselves.",
        "worker-restored-after-crash": "Workers that ran run again when the post room comes back.",
        "mail-offline-waits": "A message to a worker that does not run is accepted and waits.",
        "demo-task-completed": "`make demo` exits 0 if its task was completed and told of, and leaves nothing behind.",
        "mail-stale-alerts": "A message that nobody takes raises one alert.",
    },
    "docs/architecture.md#the-house": {
        "mail-fold-deterministic": "The rows of the projection depend on the log alone.",
        "mail-restart-resumes": "A restart folds what was missed.",
        "mail-crash-repeats": "Work of the post office that a crash cut off is repeated.",
        "mail-rebuild-equal": "A snapshot and the log behind it give the same rows again.",
        "store-rebuild-equal": "`postroom admin rebuild` gives the same messages and posts again.",
        "mail-listener-bounded": "A slow reader of a live view is told of a gap and holds up nobody.",
    },
    "docs/architecture.md#the-bus": {
        "bus-publish-acked-on-store": "A publish returns once the record is stored.",
        "bus-publish-deduplicated": "A second record with the same id is not stored.",
        "bus-publish-refused-typed":
            "A full stream, a lost update and an over-size record are typed errors, and nothing is stored.",
        "bus-publish-denied-typed": "A denied publish is `Forbidden` at once.",
        "bus-publish-no-stream-typed": "A subject that no stream stores is `NoResponders`.",
        "bus-publish-outage-typed": "No server within the deadline is a typed error.",
        "bus-subscribe-denied-typed": "Listening to others is `Forbidden`.",
        "bus-request-answered": "A request gets the answer to itself.",
        "bus-request-queue-group": "One member of a queue group handles each request.",
        "bus-request-no-responders": "That nobody listens is known at once.",
        "bus-request-timeout-typed": "No answer in time is `RequestTimeout`.",
        "bus-request-error-typed": "A responder's error reaches the asker as a problem document.",
        "bus-consume-in-order": "Records are delivered in order.",
        "bus-consume-acked-once": "An acknowledged record does not come again.",
        "bus-consume-redelivered":
            "A record that was given back, or whose handler raised, comes again with the next attempt.",
        "bus-consume-survives-death": "Unacknowledged records come again after their consumer was killed.",
        "bus-consume-beats": "Open deliveries are kept by beats.",
        "bus-consume-exhausted-advised": "A record given up after `max_deliver` leaves an advisory.",
        "bus-consume-terminated-advised": "A terminated record leaves an advisory with the reason.",
        "bus-consume-own-only": "An agent consumes only its own.",
        "bus-poke-takes-nothing": "A poke makes the advisory come and takes no record.",
        "bus-replay-from-position": "Stored records can be read again from a position to the end.",
        "bus-close-idempotent": "Closing twice is harmless and ends everything.",
        "bus-survives-server-restart": "Publishing and pulling survive SIGKILL and restart of the server.",
        "bus-survives-silent-server": "A hung server is left and found again.",
        "bus-connect-refused-typed": "No server, or a refused credential, is a typed error.",
        "bus-lost-reported": "A connection that ended for good says why.",
        "bus-hostile-bytes-survived": "Hostile bytes do not end the receiver.",
        "bus-agent-rights-least": "An agent has its own rights and no others.",
        "ids-control-plane-reserved": "No agent gets the control plane's uid.",
        "ids-subject-tokens-safe": "A checked name is one harmless token of a subject.",
    },
    "docs/architecture.md#embedded-server": {
        "bus-ack-means-disk": "The running server flushes every record to disk before it acknowledges it.",
        "bus-publish-acked-on-disk": "An agent's own record is stored and acknowledged through the import.",
        "bus-memory-leaves-nothing": "A throw-away server refuses streams on disk.",
        "bus-store-locked": "A second server on one store is refused and told the holder's pid.",
        "disk-full-refused": "A full disk is a typed refusal before anything is written.",
        "disk-full-heals": "When there is space again the log takes records again, without a person.",
        "bus-store-orphan-awaited": "`up` waits for the server of a killed post room to end.",
        "bus-store-survives-kill": "A killed server starts on the same port with all it had acknowledged.",
        "bus-server-dies-with-parent": "The server dies when its parent is killed.",
        "bus-port-taken-told": "A taken port is told with its number and a remedy.",
        "bus-old-server-refused": "A server older than 2.12.6 is refused with both versions and a remedy.",
        "bus-server-restarted": "A crashed server comes back on the same port.",
        "bus-server-crashes-reported": "Too many crashes end the supervision with the server's last words.",
    },
    "docs/architecture.md#subjects": {
        "bus-sender-authenticated": "The sender comes from the subject and not from the payload.",
        "presence-future-ignored": "A status from the future counts from now and hides no later one.",
        "presence-decode-strict": "Any payload is a status that can be shown, or a protocol violation.",
        "presence-roundtrip-whole": "A status survives the wire.",
        "mail-sender-authenticated": "The sender of a message comes from its subject only.",
    },
    "docs/architecture.md#receivers-check": {
        "bus-forged-reply-ignored": "Forged or steered replies and deliveries are ignored.",
        "bus-status-by-reply-subject": "A stored message with a `Status` header is a message.",
        "bus-request-deputy-refused": "A request that steers its answer elsewhere is not answered.",
        "bus-announcement-checked": "Announcements count only with their sender's reply subject.",
    },
    "docs/architecture.md#streams": {
        "bus-streams-bounded":
            "Every stream is bounded, and accepted records are never dropped where that is promised.",
        "bus-streams-hardened": "Rollup, TTL, schedules, counters and batches are off.",
        "bus-inbox-bounded-per-pair": "One sender who fills an inbox does not stop others.",
        "mail-full-typed": "A full inbox is a typed refusal to the sender.",
        "mail-retention-covered": "Only final records that a verified copy covers are deleted from the log.",
    },
    "docs/architecture.md#envelope": {
        "envelope-decode-strict":
            "Any payload is an envelope that can be stored and sent again, or a protocol violation.",
        "envelope-roundtrip-whole": "An envelope survives the wire unchanged.",
        "envelope-sender-absent": "No envelope says who sent it.",
        "envelope-size-bounded": "An envelope over 512 KiB is not made.",
        "envelope-expiry-kept": "An envelope is expired from its instant on.",
        "ids-message-id-idempotent": "The same key toward the same recipient is the same message.",
        "ids-message-id-unguessable": "Another secret, recipient or key makes another id.",
        "mail-key-once": "One idempotency key is one message.",
        "mail-retry-once": "A lost answer of the log makes no second message.",
        "mail-id-unsquattable": "A message whose id somebody else used first is sent under a new one, with an alert.",
        "mail-size-limit-named": "A message over the limit is refused before it is sent, and the limit is named.",
        "mail-duplicate-ignored": "A record that is stored twice has one effect.",
        "sidecar-duplicate-suspected": "A worker does not take a duplicate at the first use of an id for acceptance.",
        "sidecar-send-retried": "A worker's send whose answer is lost is sent again under the same id.",
    },
    "RFC 3339 section 5.6": {
        "envelope-time-rfc3339": "Instants on the wire are RFC 3339 with a zone, and anything else is refused.",
    },
    "docs/architecture.md#final-states": {
        "receipts-decode-strict": "Any payload is a receipt that can be stored, or a protocol violation.",
        "receipts-roundtrip-whole": "A receipt survives the wire.",
        "receipts-final-states": "A message that expects a reply ends answered or dead; another one ends seen or dead.",
        "receipts-final-stays": "After a final state nothing changes.",
        "receipts-state-forward": "No report moves a state back.",
        "receipts-setter-checked": "Only recipient and control plane report on a message.",
        "mail-states-forward": "The state of a stored message only moves forward, in whatever order reports come.",
        "mail-receipt-proven": "A report by anybody but the recipient or the post office is ignored.",
        "mail-reply-answers": "A reply makes its message answered, also when it is folded first.",
        "mail-unknown-refused": "Sending to nobody is refused before anything is stored.",
        "mail-unknown-recipient-refused": "The command line names an unknown recipient at once.",
        "mail-unknown-dead": "A stored message to nobody, or to a retired agent, is dead with that reason.",
        "mail-expiry-dead": "A message whose time is over is dead(expired).",
        "mail-malformed-dead": "Junk is recorded as dead or ignored and never stops the fold.",
        "mail-poison-passed": "A record that no rule foresaw is reported and passed over.",
        "mail-person-seen": "A person marks a message as seen.",
        "mail-send-readable": "A sent message can be read at once.",
        "mail-post-readable": "A post can be read at once.",
    },
    "docs/architecture.md#dead-letters": {
        "mail-deadletter-moved": "A delivery that failed for good becomes a dead letter with reason and attempts.",
        "mail-deadletter-once": "One failed delivery gives one letter, whatever crashes in between.",
        "mail-deadletter-own-consumer": "An agent cannot declare dead what was sent to another.",
        "mail-advisories-kept": "An agent that floods with refusals or alerts pushes out its own only.",
        "mail-requeue-linked": "A requeue is a new message linked to the dead one, which stays dead.",
        "mail-drop-kept": "A dropped letter leaves the list and stays in the log.",
        "mail-dead-letter-requeued":
            "A message that kills its worker becomes a dead letter that the command line requeues.",
    },
    "docs/architecture.md#store": {
        "store-disk-named": "A full or unwritable disk is a typed error.",
        "store-schema-equal": "A new database has the same schema as a migrated one.",
        "store-key-revoked": "A revoked key, or one of a retired owner, has no owner.",
        "store-questions-indexed": "The standing questions of the post office scan no table.",
    },
    "docs/architecture.md#identity-and-trust": {
        "services-resolve-names": "An agent learns from the control plane who a nick is, and who there is.",
        "services-errors-typed": "A request of an agent that cannot be met is answered with a problem document.",
        "services-history-own-projects": "An agent reads the history of its own projects' feeds; posts go both ways.",
        "services-credential-renewed": "A credential is renewed for the key that is connected.",
        "mail-flows-between-accounts": "Workers and people write to workers across the two accounts.",
        "identity-sender-proved": "An agent cannot publish to a subject that is not its own.",
        "identity-inbox-private": "An agent reads nothing that is for another.",
        "identity-replies-not-forged":
            "A forged reply subject or trace destination stores nothing in a stranger's inbox.",
        "identity-control-requests-stamped": "A control request carries who the server says sent it.",
        "identity-uid-validated": "The minter refuses uids and projects that could open foreign subjects.",
        "identity-scope-bounds": "The agents' signing key cannot mint wider rights.",
        "identity-credential-required": "Nobody connects without a valid credential.",
        "identity-credential-expires": "An expired credential neither connects nor stays connected.",
        "identity-revocation-cuts": "A revoked credential is cut and not let in again; others stay.",
        "identity-revocation-survives-restart": "A revocation holds over a restart of the server.",
        "identity-keys-private": "Keys are readable by their owner only.",
        "ids-nick-impersonation-refused": "A nick that looks like people or the system is refused.",
        "ids-nick-not-uid": "A nick that reads as a uid is refused.",
        "directory-name-unique": "Equal or look-alike names are refused.",
        "directory-name-reserved": "Reserved and uid-like names are refused to agents.",
        "directory-uid-once": "A uid is never given twice.",
        "worker-nick-taken-refused": "A worker cannot be spawned under a taken nick or one that looks like it.",
        "worker-nick-reserved-refused": "A worker cannot be spawned under a reserved or malformed nick.",
        "api-key-required": "The API wants the operator's key.",
        "api-host-checked": "The running API refuses a foreign Host header.",
        "api-worker-route-closed": "Only a worker itself, through its own door, reports its events.",
        "http-host-checked": "A request for another Host is forbidden.",
        "http-origin-checked": "A page of another Origin is forbidden.",
        "http-worker-unforgeable": "No header makes a request one of a worker.",
        "gateway-token-required": "A wrong token is refused at the door.",
        "gateway-token-bound": "A worker's token is worth nothing at another door.",
        "audit-secrets-absent": "No token and no relayed byte is in the audit log.",
        "client-credential-private": "A credential file that others can read is refused.",
        "sidecar-credential-refused": "A worker whose credential is refused ends with that exit code.",
    },
    "docs/architecture.md#the-two-walls": {
        "sandbox-canary-unreachable":
            "From inside, no canary (TCP, UDP, abstract, socket, file, process, vsock, io_uring) can be reached.",
        "sandbox-gateway-reachable": "The gateway socket can be reached from inside.",
        "inward-socket-itself":
            "The control plane follows no link in a worker's folder, and bounds and checks what it hears there.",
        "sandbox-probe-tries": "A probe starts a real sandbox and believes only canaries.",
        "sandbox-select-failclosed": "A wall that does not hold is an error with a remedy, never a lesser wall.",
        "sandbox-missing-fails-closed": "With no sandbox to be had a spawn fails with the remedy and leaves no worker.",
        "sandbox-none-explicit": "No wall is had by the name `none` only.",
        "template-wall-kept": "A template alone cannot do without the wall.",
        "template-state-closed": "A template cannot share the state folder or the doors of Postroom.",
        "sandbox-none-shown": "A worker without a wall is shown as such.",
        "sandbox-secret-hidden":
            "A secret is in no command line, environment or procfs file, nor in memory that the program can read.",
        "sandbox-environment-cleared": "The program gets the environment of its spec and nothing else.",
        "sandbox-workspace-writable": "What is written to the workspace and state folder is on the host.",
        "sandbox-host-readonly": "Nothing outside the writable folders can be written.",
        "sandbox-kernel-settings-readonly": "No kernel setting can be written from inside, also as root.",
        "sandbox-syscalls-filtered": "Only four socket families can be had, and no io_uring, keyring or foreign call.",
        "sandbox-spec-checked": "A spec that would open the wall is refused before anything starts.",
        "sandbox-kill-complete": "Kill leaves no process.",
        "sandbox-end-complete": "When the program ends, every descendant ends.",
        "sandbox-dies-with-parent": "The sandbox dies when its parent is killed with SIGKILL.",
        "audit-relay-first":
            "A connection is in the audit log before its first byte passes; what cannot be logged is not relayed.",
        "audit-line-counts": "The end of a connection is logged with worker, protocol and bytes each way.",
        "audit-line-each": "Each connection, relayed or refused, has exactly one ending in the log.",
        "audit-line-whole": "A torn line is an error and spoils no other.",
        "audit-cut-counted": "A connection that is cut leaves its line with the bytes so far.",
        "audit-file-private": "Only the owner can read the audit log.",
        "gateway-audit-written": "A worker's NATS and HTTP connections are both in the audit log.",
        "gateway-bytes-relayed": "Bytes pass a door both ways as they are.",
        "gateway-halfclose-relayed": "Either side may end its direction and still receive.",
        "gateway-connections-bounded": "A worker has a bounded number of connections.",
        "gateway-memory-bounded": "A slow reader stops the sender, and nothing is lost.",
        "gateway-door-closed": "Closing a door cuts every connection through it.",
        "gateway-door-renewed": "A reopened door takes only the new token.",
        "gateway-preface-exact": "Only the exact preface opens a door; anything else is closed without an answer.",
        "gateway-preface-deadline": "A late preface is refused.",
        "gateway-socket-private": "Only the owner may use a door's socket.",
        "gateway-statistics-counted": "The gateway counts doors and connections.",
        "gateway-upstream-refused": "A connection whose upstream refuses or is late is closed.",
        "gateway-worker-named": "The upstream is opened for the door's worker.",
        "http-request-deadline": "A connection whose request does not come to its end is cut.",
        "http-connections-bounded": "The HTTP port has a bounded number of connections.",
        "http-loopback-only": "Postroom listens on loopback only.",
        "http-worker-named": "A request through a door is served as that door's worker.",
        "sidecar-wall-tested": "A reachable canary behind an enforced wall ends the worker before its agent runs.",
        "sidecar-door-relays": "In the sandbox, bytes pass both ways after the preface, and ends are passed on.",
    },
    "docs/architecture.md#sidecar": {
        "sidecar-message-handed": "A message is handed to the agent and its reply reaches the sender.",
        "sidecar-delivered-read": "`delivered` means read off the pipe, `seen` means the agent confirmed.",
        "sidecar-read-known": "The sidecar knows when the agent has read its input empty.",
        "sidecar-failed-reply-returned": "A message whose reply was refused comes again and is not held for ever.",
        "sidecar-crash-restarted": "A crashed agent is restarted and its message comes again, flagged.",
        "sidecar-crash-limited": "An agent that keeps ending is given up with an alert and keeps its inbox.",
        "sidecar-poison-isolated": "A message that kills its reader takes no other message with it.",
        "sidecar-line-bounded": "An over-long line is skipped with an error and the next one counts.",
        "sidecar-unread-kept": "An agent that does not read loses nothing.",
        "sidecar-unread-stalled": "An agent that does not read is shown as stalled until it reads.",
        "sidecar-output-backpressured": "A flood of output is held back and every post is stored.",
        "sidecar-kill-survived": "A kill of the sidecar loses nothing and doubles nothing.",
        "sidecar-outage-survived": "What an agent sends while the bus is away is stored when it is back.",
        "sidecar-journal-survives": "Confirmed messages are known to the next start.",
        "sidecar-stop-drained": "SIGTERM tells the agent, and its last words count.",
        "sidecar-config-removed": "The configuration is gone before the agent runs.",
        "sidecar-code-own": "A module that an agent left in its workspace is not run by the sidecar.",
        "sidecar-memory-closed": "A process of the same user cannot read the sidecar's environment or memory.",
        "sidecar-memory-light": "An idle sidecar stays under 60 MB.",
        "worker-removed-for-good": "A removed worker's nick is free, and what waits for it is dead with that reason.",
        "worker-exit-shown": "An agent that exits 1 is shown as failed, raises an alert, and its mail waits.",
    },
    "docs/architecture.md#agent-lines": {
        "worker-feed-heard": "A worker whose template asks for it hears the posts of its project.",
        "sidecar-text-harmless": "Text cannot forge a second message or control sequences for a text agent.",
        "sidecar-text-answers-matched": "An answer of a text agent goes to the question that it is about.",
        "sidecar-text-completes": "The next line of a text agent is the result of its task.",
        "sidecar-lines-survive": "No line of an agent's can be an exception in its sidecar.",
        "sidecar-sample-works": "The agent that the documentation shows does its tasks.",
    },
    "docs/architecture.md#the-ephemeral-path": {
        "ephemeral-streams": "A worker streams another's task while it works: each change once, in order.",
        "ephemeral-offline": "A task for a worker that does not run is taken, and streamed when the worker runs.",
        "ephemeral-kill": "A stream goes on, nothing lost or twice, when the serving sidecar is killed.",
        "ephemeral-nobody": "A call that only a worker which does not run could answer is refused at once.",
        "ephemeral-own-tasks": "Who asked reads, follows and cancels a task over rpc; for anybody else there is none.",
        "ephemeral-begins-nothing": "No task begins over rpc; the refusal names the inbox.",
        "ephemeral-forged-reply": "A request whose answer would go to somebody else gets no answer.",
        "ephemeral-asks": "A client of the official SDK asks any worker at an address of the local API.",
        "ephemeral-slow-reader": "A reader that stands still does not grow the serving sidecar, and misses nothing.",
        "ephemeral-no-lies": "What a worker says live can neither end a task nor hide what is stored of it.",
    },
    "docs/architecture.md#local-api": {
        "a2a-server-streams": "A stream of a task ends when the task ends or asks, a subscription when it ends.",
        "sidecar-api-local": "Only well-formed local requests are answered.",
        "sidecar-command-sends": "`postroom-agent` sends and prints the id.",
        "sidecar-command-delegates": "`postroom-agent delegate --wait` prints the result of the task.",
        "a2a-server-speaks": "An A2A 1.0 client gives a worker a task at its port and has the result.",
        "a2a-server-card": "The worker's own server shows its card at both well-known paths.",
        "a2a-server-local": "Web pages and other host names cannot use a worker's A2A server.",
        "a2a-server-socket": "The socket in the state folder has the A2A routes alone, for its owner.",
    },
    "docs/architecture.md#registry": {
        "cards-template-built": "A worker's card says what its template says.",
        "cards-size-bounded": "A card has at most 32 KiB.",
        "cards-claims-refused": "A card that claims another's name or URL is refused with the reason.",
        "cards-found-by-skill": "Cards are found by skill and by text.",
        "cards-write-control-only": "A worker's credential can neither write, delete nor read the registry.",
        "cards-live-registered": "The signed card of a worker is in the registry while it is online, and no longer.",
        "cards-silent-removed": "The card of a worker that is silent is removed.",
        "cards-bucket-expires": "The registry forgets by itself what is not written anew.",
        "cards-writes-bounded": "A worker that changes its card in a loop is written once a second at most.",
        "cards-announcement-taken": "A card that a worker announces anew is signed and replaces the old one.",
        "cards-refusal-alerts": "A refused announcement raises an alert and changes nothing.",
        "cards-find-on-bus": "An agent finds the cards of others, and whether they are online.",
        "cards-http-served": "The API serves signed cards, and the key to check them with.",
        "sidecar-card-announced": "A sidecar announces its card at its start and when it has changed.",
        "sidecar-agents-found": "An agent finds others by a line, by the local API and by `postroom-agent agents`.",
        "cli-agents-listed": "`postroom agents` lists everybody with state and skills, made harmless.",
        "cards-key-kept": "The key that signs cards is in the keyring, 0600, and survives restarts.",
        "cards-form-canonical": "What is signed is canonical JSON (RFC 8785).",
        "cards-signature-verifies": "A card verifies with the public key, and a changed one does not.",
    },
    "docs/architecture.md#templates": {
        "template-errors-typed": "Any text is a template or a typed error.",
        "template-unknown-refused": "An unknown table or key is refused with the nearest known one.",
        "template-unknown-key-refused": "`postroom spawn` names the unknown key and the one that was meant.",
        "template-bad-toml-refused": "Bad TOML is refused with its place.",
        "template-missing-file-refused": "A missing file of a template is named.",
        "template-files-checked": "The files sent are those that the template names.",
        "template-values-checked": "A wrong value is refused with its place.",
        "template-override-declared": "Only declared parameters can be set.",
        "template-undeclared-value-refused": "`--set` of an undeclared parameter names the declared ones.",
        "template-paths-confined": "No template path is relative, the root, or climbs.",
        "template-size-bounded": "A template over 64 KiB is refused.",
        "template-env-reserved": "A template cannot set a variable that Postroom sets.",
        "worker-spawn-all-or-nothing": "A worker that could not be started leaves nothing.",
        "template-events-interactive": "A worker whose template has no [sidecar] table reports no events.",
    },
    "docs/architecture.md#state-folder": {
        "state-folder-private": "The state folder is 0700.",
        "state-lock-exclusive": "A second post room is refused with pid and address of the first.",
        "state-lock-freed": "The lock ends with its process, also by SIGKILL.",
        "state-server-file-private": "`server.json` and `lock` are 0600.",
        "state-write-atomic": "A failed write leaves the old file.",
        "state-unwritable-told": "`up` without write permission says so, with a remedy.",
    },
    "docs/architecture.md#http-api": {
        "api-body-bounded": "A request's body over 8 MiB is refused.",
        "errors-code-stable": "Each error has a code of its own.",
        "errors-http-status": "The most specific class of an error decides the HTTP status.",
        "errors-problem-roundtrip": "A client raises what the server raised.",
        "http-livez-first": "`/livez` answers before the API is open.",
        "http-readyz-truthful": "`/readyz` says whether the API is open.",
        "http-starting-retry": "Before that, a request gets 503 with Retry-After.",
        "http-port-chosen": "A chosen port that is taken is an error; a default one means any free one.",
        "http-shutdown-ends": "A stopped listener ends and frees its port.",
        "client-send-repeats-once": "A repeated send carries the same key.",
        "client-server-found-again": "A post room that moved is found again.",
        "client-stream-resumes": "After a loss a stream goes on behind the last record, with no duplicates.",
        "task-delegate-stored": "A delegated task is on disk when the API answers, whether its worker runs or not.",
        "task-skill-chosen": "A task for a skill goes to who has it: online first, then who has the least to do.",
        "task-key-once": "The same key is the same task, also where a skill chooses the worker.",
        "task-refusal-typed": "What cannot be delegated, canceled or answered is refused with a problem document.",
        "task-wait-wakes": "A wait for a task ends when the task does, and shows what was made.",
        "task-stream-ends": "A task's event stream tells each change once and ends after the last.",
        "task-shown-of-worker": "A worker is shown with the task that it is at and how many it has.",
        "inward-card-served": "The card that a worker serves itself is shown as it is, by a worker that runs.",
    },
    "RFC 9457 section 3": {
        "errors-problem-document": "An error is reported as a problem document.",
    },
    "docs/architecture.md#command-line": {
        "errors-exit-codes": "The most specific class of an error decides the exit code.",
        "cli-help-light": "Help loads click and nothing heavier.",
        "cli-completion-offered": "The shell completes commands.",
        "cli-json-everywhere": "Every command that answers takes `--json`.",
        "cli-errors-one-line": "An error is one line with its remedy and its exit status.",
        "cli-interrupt-clean": "Ctrl-C ends with 130, a chat on a terminal with 0, never with a traceback.",
        "cli-pipe-quiet": "A reader that goes away makes no noise.",
        "cli-answer-seen-after-shown": "An answer is marked seen only after it was printed.",
        "cli-send-outcome-status": "A dead message exits 7, a late one 9 as still on its way.",
        "cli-send-prints-receipt": "`send` prints the id and the state of the message.",
        "cli-send-waits-answered": "`send --wait answered` prints the answer.",
        "cli-spawn-starts-up": "`spawn` with nothing running starts a post room and says so.",
        "cli-text-harmless": "Hostile text cannot act on the terminal or forge a line.",
        "cli-chat-pipes": "Lines of a pipe are sent in order, and a refusal is the exit status.",
        "cli-chat-works-in-a-pipe": "`chat @nick` in a pipe shows the live answer.",
        "cli-chat-project-feed": "What is typed in a project's chat is in its history.",
        "cli-chat-waits": "A piped chat can wait for its answers.",
        "cli-chat-echo-once": "Own lines show once on a terminal, with dim receipts.",
        "cli-template-files-inside": "No template file from outside its folder is sent.",
        "cli-up-detached-ready": "`up --detach` returns when ready, `down` when it is gone.",
        "cli-up-failure-told": "The reason of a failed detached start is told, with its exit status.",
        "cli-up-started-once": "Simultaneous spawns start one post room.",
        "cli-second-up-refused": "A second `up` on the same folder says who has it.",
        "cli-port-taken-told": "A taken port is named.",
        "cli-up-fault-told": "A fault while a post room opens is one line with its remedy.",
    },
    "docs/binding.md#operations": {
        "translation-wire-bytes": "What a TypeScript peer of A2A 0.3 writes is what we write, byte for byte.",
        "translation-legacy-equal": "A2A 0.3 is translated as the SDK does it, save what is said to differ.",
        "translation-params-named": "What is wrong in parameters is refused with the member's name.",
        "operations-both-versions": "An SDK handler answers every operation in A2A 1.0, in 0.3 and in protobuf.",
        "operations-version-refused": "A call that states another major version than its method's is refused.",
        "operations-context-told": "A handler is told service parameters, extensions, tenant, caller and task id.",
        "operations-stream-closed": "A stream that its consumer leaves is closed at the handler.",
    },
    "docs/binding.md#errors": {
        "errors-rpc-lossless": "An error keeps code, message and data from the handler to the client.",
        "errors-rpc-unforeseen": "An unforeseen exception is answered as an internal error without its text.",
    },
    "NO_COLOR": {
        "cli-colour-off": "NO_COLOR, a dumb terminal or a pipe turn colours off.",
    },
}
"""Source to id to behaviour."""
# fmt: on

REQUIREMENTS: dict[str, Requirement] = by_id(
    Requirement(id, source, behaviour)
    for source, promises in _LISTED.items()
    for id, behaviour in promises.items()  # noqa: A001 (the field's own word)
)

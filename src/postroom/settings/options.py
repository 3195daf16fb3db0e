"""The table of all settings: names, valid values and meaning.

`sources` reads the environment and the files by it, `postroom config` edits by it, and `python -m tools.settings`
writes the table in docs/operating.md from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from postroom.errors import InvalidInput
from postroom.protocol.origins import origin_of
from postroom.protocol.proxies import parse_network
from postroom.protocol.similar import did_you_mean
from postroom.protocol.template import LEVELS
from postroom.settings.keeping import parse_age, parse_keep, parse_pauses, parse_project
from postroom.settings.option import Option, ValueKind

SANDBOXES = ("auto", "bubblewrap", "netns", "landlock", "seatbelt", "opensandbox", "none")
"""Names of sandbox providers; `sandbox.select` has their classes, but takes long to import."""


OPTIONS = (
    Option(
        "http.port",
        "http_port",
        "POSTROOM_HTTP_PORT",
        ValueKind.PORT,
        "port of the HTTP API on this machine; 0 for any free one",
        usual="4280, or any free one",
        flag="--port",
    ),
    Option(
        "http.listen",
        "listen",
        "POSTROOM_LISTEN",
        ValueKind.LIST,
        "`ADDR[:PORT]` for other machines, with TLS",
        flag="--listen",
    ),
    Option(
        "http.public_url",
        "public_urls",
        "POSTROOM_PUBLIC_URL",
        ValueKind.LIST,
        "`https://NAME[:PORT]` by which others reach the API [behind a proxy or tunnel](#behind-a-proxy)",
        check=origin_of,
    ),
    Option(
        "http.trusted_proxies",
        "trusted_proxies",
        "POSTROOM_TRUSTED_PROXIES",
        ValueKind.LIST,
        "addresses or networks of the proxies in front; only from them is `X-Forwarded-For` taken",
        check=parse_network,
    ),
    Option(
        "nats.port",
        "nats_port",
        "POSTROOM_NATS_PORT",
        ValueKind.PORT,
        "port of the embedded nats-server; 0 for any free one",
        usual="4222, or any free one",
        flag="--nats-port",
    ),
    Option(
        "nats.url",
        "nats_urls",
        "POSTROOM_NATS_URL",
        ValueKind.LIST,
        "addresses of [a NATS of your own](#running-on-your-own-nats)",
    ),
    Option(
        "nats.ca",
        "nats_ca",
        "POSTROOM_NATS_CA",
        ValueKind.FILE,
        "certificate of a private authority above it (PEM)",
    ),
    Option(
        "nats.server",
        "nats_server",
        "POSTROOM_NATS_SERVER",
        ValueKind.FILE,
        "the nats-server program to use instead of the installed one",
    ),
    Option(
        "database.url",
        "database_url",
        "POSTROOM_DATABASE_URL",
        ValueKind.TEXT,
        "`postgresql://USER:PASSWORD@HOST/NAME` of [a PostgreSQL](#running-on-your-own-postgresql) "
        "instead of files in the state folder; it is in no log",
        secret=True,
    ),
    Option(
        "tasks.store",
        "task_store",
        "POSTROOM_TASK_STORE",
        ValueKind.TEXT,
        "`surrealdb+file:///FOLDER` or `surrealdb+wss://USER@HOST/NAMESPACE`: tasks lie in "
        "[a SurrealDB](#tasks-in-surrealdb); it is in no log",
        secret=True,
    ),
    Option(
        "tasks.password",
        "task_store_password",
        "POSTROOM_TASK_STORE_PASSWORD",
        ValueKind.TEXT,
        "the password of its user",
        secret=True,
    ),
    Option(
        "tasks.password_file",
        "task_store_password_file",
        "POSTROOM_TASK_STORE_PASSWORD_FILE",
        ValueKind.FILE,
        "a file with that password",
    ),
    Option(
        "tls.mode",
        "tls",
        "POSTROOM_TLS",
        ValueKind.CHOICE,
        "`always`: TLS on loopback, too",
        choices=("auto", "always"),
    ),
    Option(
        "tls.cert",
        "tls_cert",
        "POSTROOM_TLS_CERT",
        ValueKind.FILE,
        "a certificate of your own (PEM, with its chain)",
        flag="--tls-cert",
    ),
    Option("tls.key", "tls_key", "POSTROOM_TLS_KEY", ValueKind.FILE, "its key", flag="--tls-key"),
    Option(
        "tls.ca",
        "tls_ca",
        "POSTROOM_TLS_CA",
        ValueKind.FILE,
        "the authority that clients trust for it",
        flag="--tls-ca",
    ),
    Option(
        "gateway.listen",
        "gateway_listen",
        "POSTROOM_GATEWAY_LISTEN",
        ValueKind.TEXT,
        "`ADDR[:PORT]` where the gateway takes [sandboxes of other machines](#workers-on-opensandbox)",
        flag="--gateway-listen",
    ),
    Option(
        "gateway.address",
        "gateway_address",
        "POSTROOM_GATEWAY_ADDRESS",
        ValueKind.TEXT,
        "`NAME[:PORT]` by which they find it; the certificate has to stand for it",
    ),
    Option(
        "a2a.grpc_listen",
        "grpc_listen",
        "POSTROOM_A2A_GRPC_LISTEN",
        ValueKind.TEXT,
        "`ADDR[:PORT]` where [A2A over gRPC](a2a.md#grpc) is served: on loopback as the API is, else with TLS",
    ),
    Option(
        "a2a.grpc_address",
        "grpc_address",
        "POSTROOM_A2A_GRPC_ADDRESS",
        ValueKind.TEXT,
        "`NAME[:PORT]` by which clients of other machines find it, as their agents' cards say",
    ),
    Option(
        "gateway.violations",
        "violations",
        "POSTROOM_GATEWAY_VIOLATIONS",
        ValueKind.COUNT,
        "violations of one worker within ten minutes after which it is cut off",
    ),
    Option(
        "egress.allow_private",
        "egress_private",
        "POSTROOM_EGRESS_ALLOW_PRIVATE",
        ValueKind.LIST,
        "private places, `HOST:PORT` or `NETWORK:PORT`, that templates may let workers out to",
    ),
    Option(
        "egress.ca",
        "egress_ca",
        "POSTROOM_EGRESS_CA",
        ValueKind.FILE,
        "further authorities for what workers reach outside (PEM)",
    ),
    Option(
        "webhooks.retry",
        "webhooks_retry",
        "POSTROOM_WEBHOOKS_RETRY",
        ValueKind.TEXT,
        "pauses in seconds behind the attempts after 0, 5, 30 and 120 s; `none` for no more attempts",
        check=parse_pauses,
    ),
    Option(
        "sandbox.provider",
        "sandbox",
        "POSTROOM_SANDBOX",
        ValueKind.CHOICE,
        "sandbox of templates that name none",
        flag="--sandbox",
        choices=SANDBOXES,
    ),
    Option(
        "sandbox.isolation",
        "isolation",
        "POSTROOM_ISOLATION",
        ValueKind.CHOICE,
        "the weakest wall that is taken for templates that state none",
        choices=LEVELS,
    ),
    Option(
        "sandbox.bwrap",
        "bwrap",
        "POSTROOM_BWRAP",
        ValueKind.FILE,
        "the bubblewrap program to use, and no other",
    ),
    Option(
        "opensandbox.url",
        "opensandbox_url",
        "POSTROOM_OPENSANDBOX_URL",
        ValueKind.TEXT,
        "the OpenSandbox server's lifecycle API, without `/v1`; `http://` only on loopback",
    ),
    Option(
        "opensandbox.key",
        "opensandbox_key",
        "POSTROOM_OPENSANDBOX_KEY",
        ValueKind.TEXT,
        "its API key; it is in no log",
        secret=True,
    ),
    Option(
        "opensandbox.key_file",
        "opensandbox_key_file",
        "POSTROOM_OPENSANDBOX_KEY_FILE",
        ValueKind.FILE,
        "the file that holds its API key",
    ),
    Option(
        "opensandbox.image",
        "opensandbox_image",
        "POSTROOM_OPENSANDBOX_IMAGE",
        ValueKind.TEXT,
        "container image of the workers there",
    ),
    Option(
        "opensandbox.python",
        "opensandbox_python",
        "POSTROOM_OPENSANDBOX_PYTHON",
        ValueKind.TEXT,
        "the Python in it",
    ),
    Option(
        "workers.stop_grace",
        "stop_grace",
        "POSTROOM_STOP_GRACE",
        ValueKind.SECONDS,
        "seconds that a worker has to end before it is killed",
        least=0.1,
    ),
    Option(
        "workers.credential_lifetime",
        "jwt_lifetime",
        "POSTROOM_CREDENTIAL_LIFETIME",
        ValueKind.SECONDS,
        "seconds that a worker's credential for the bus is valid",
        least=600,
    ),
    Option(
        "messages.stale_after",
        "stale_after",
        "POSTROOM_STALE_AFTER",
        ValueKind.SECONDS,
        "seconds after which the sender of a message that nobody took is told so, and an alert raised",
    ),
    Option(
        "limits.requests",
        "limit_requests",
        "POSTROOM_LIMIT_REQUESTS",
        ValueKind.COUNT,
        "requests a second of one API key; more are [refused](#limits-of-callers). The operator's key has no limit",
    ),
    Option(
        "limits.burst",
        "limit_burst",
        "POSTROOM_LIMIT_BURST",
        ValueKind.COUNT,
        "requests of one API key that may come at once before that",
    ),
    Option(
        "limits.strangers",
        "limit_strangers",
        "POSTROOM_LIMIT_STRANGERS",
        ValueKind.COUNT,
        "requests a minute of one address without a valid key",
    ),
    Option(
        "limits.open",
        "limit_open",
        "POSTROOM_LIMIT_OPEN",
        ValueKind.COUNT,
        "requests a minute of one API key that came by [open registration](post-office.md#registration)",
    ),
    Option(
        "limits.streams",
        "limit_streams",
        "POSTROOM_LIMIT_STREAMS",
        ValueKind.COUNT,
        "streams of events and WebSockets that one API key may have open",
    ),
    Option(
        "limits.tasks",
        "limit_tasks",
        "POSTROOM_LIMIT_TASKS",
        ValueKind.COUNT,
        "open tasks of one agent; more are refused",
    ),
    Option(
        "limits.pair",
        "limit_pair",
        "POSTROOM_LIMIT_PAIR",
        ValueKind.COUNT,
        "messages a minute from one agent to one of another organisation, or to one that is reached by grants alone",
    ),
    Option(
        "limits.pair_bytes",
        "limit_pair_bytes",
        "POSTROOM_LIMIT_PAIR_BYTES",
        ValueKind.BYTES,
        "bytes of the parts of such a message",
    ),
    Option(
        "limits.waiting",
        "limit_waiting",
        "POSTROOM_LIMIT_WAITING",
        ValueKind.COUNT,
        "messages that may wait for such a recipient; it has to read some before more are taken",
    ),
    Option(
        "workspace.max_file_mb",
        "max_file_mb",
        "POSTROOM_WORKSPACE_MAX_FILE_MB",
        ValueKind.COUNT,
        "MB of the largest file that comes back from a worker [without being let in](coding-agents.md#large-files)",
    ),
    Option(
        "blobs.largest",
        "blob_limit",
        "POSTROOM_BLOB_LARGEST",
        ValueKind.BYTES,
        "bytes of the largest blob",
    ),
    Option(
        "blobs.total",
        "blobs_limit",
        "POSTROOM_BLOB_TOTAL",
        ValueKind.BYTES,
        "bytes of all blobs of an organisation",
    ),
    Option(
        "audit.mode",
        "audit",
        "POSTROOM_AUDIT",
        ValueKind.CHOICE,
        "`lossy`: what cannot be recorded passes nevertheless",
        choices=("strict", "lossy"),
    ),
    Option(
        "audit.file_bytes",
        "audit_file_bytes",
        "POSTROOM_AUDIT_FILE_BYTES",
        ValueKind.BYTES,
        "bytes after which a new file of the audit log is begun",
        least=1024 * 1024,
    ),
    Option(
        "audit.files",
        "audit_files",
        "POSTROOM_AUDIT_FILES",
        ValueKind.COUNT,
        "closed files of the audit log that are kept",
    ),
    Option(
        "retention.messages",
        "keep_messages",
        "POSTROOM_RETENTION_MESSAGES",
        ValueKind.TEXT,
        "how long, and how much of each project, [messages that have ended are kept](#retention)",
        check=parse_keep,
    ),
    Option(
        "retention.tasks",
        "keep_tasks",
        "POSTROOM_RETENTION_TASKS",
        ValueKind.TEXT,
        "the same for tasks that have ended",
        check=parse_keep,
    ),
    Option(
        "retention.events",
        "keep_events",
        "POSTROOM_RETENTION_EVENTS",
        ValueKind.TEXT,
        "the same for the progress of tasks that have ended, and for events of coding agents; results and usage stay",
        check=parse_keep,
    ),
    Option(
        "retention.posts",
        "keep_posts",
        "POSTROOM_RETENTION_POSTS",
        ValueKind.TEXT,
        "the same for posts to projects",
        check=parse_keep,
    ),
    Option(
        "retention.announcements",
        "keep_announcements",
        "POSTROOM_RETENTION_ANNOUNCEMENTS",
        ValueKind.TEXT,
        "the same for announcements, each of which counts to the project of its sender",
        check=parse_keep,
    ),
    Option(
        "retention.audit",
        "keep_audit",
        "POSTROOM_RETENTION_AUDIT",
        ValueKind.TEXT,
        "how long closed files of the audit log are kept; `audit.files` bounds their number",
        check=parse_age,
    ),
    Option(
        "retention.projects",
        "keep_projects",
        "POSTROOM_RETENTION_PROJECTS",
        ValueKind.LIST,
        "rules of single projects, such as `research messages 30d 1GiB`",
        check=parse_project,
    ),
    Option(
        "screen.notify",
        "notify",
        "POSTROOM_NOTIFY",
        ValueKind.CHOICE,
        "how [the screen](terminal.md#when-you-look-elsewhere) calls you when something new needs you; read by the"
        " command, on the machine where you type it",
        choices=("bell", "osc9", "osc777", "off"),
    ),
)

BY_KEY: Mapping[str, Option] = MappingProxyType({option.key: option for option in OPTIONS})
BY_FIELD: Mapping[str, Option] = MappingProxyType({option.field: option for option in OPTIONS})

BESIDE = MappingProxyType(
    {
        "POSTROOM_STATE": "the state folder; `--state DIR`",
        "POSTROOM_ORG": "the organisation that a command is for; `--org NAME`",
        "POSTROOM_URL": "a post room of another machine, by its URL or a name of `postroom login`; `--url URL`",
        "POSTROOM_NO_TUI": "`1` for lines where [the screen](terminal.md) would open; `--no-tui`",
        "POSTROOM_THEME": "a [theme of the screen](terminal.md#reading) for this run",
        "POSTROOM_CA": "the authority that commands trust instead of the one in `server.json`",
        "POSTROOM_A2A_KEY": "a key for the server that `postroom a2a` names",
        "POSTROOM_CONNECT": "set for a run that nobody watches (`claude -p`): its session has an address all the same",
        "POSTROOM_CONNECT_LINGER": "seconds for which `postroom connect run` stays after the last session",
        "POSTROOM_CONNECT_LOCK": "a descriptor with the lock of `postroom connect run`, from the hook that begins it",
        "POSTROOM_READY_FD": "a descriptor that gets `ready` and a newline when all is up, and is closed in any case",
    }
)
"""Variables that only the environment holds: the path to a file cannot be in the file."""

INSIDE = MappingProxyType(
    {
        "POSTROOM_API": "address of the sidecar's HTTP API",
        "POSTROOM_NICK": "the worker's nick, without `@`",
        "POSTROOM_PROJECT": "its project, without `#`",
        "POSTROOM_EGRESS": "base URL of the way out, where the template has a rule",
        "POSTROOM_FROM": "adapter `text`: who asks, as `@nick`",
        "POSTROOM_TASK": "adapter `text`: id of the task that the run is about; empty for a message",
        "POSTROOM_ATTEMPT": "adapter `text`: 1 the first time that the task is begun; empty for a message",
        "TRACEPARENT": "adapters with a run for each request: the trace that it belongs to (W3C), where it has one",
        "POSTROOM_MESSAGE": "adapter `text`: id of the message that the run is about; empty for a task",
        "POSTROOM_SIDECAR_CONFIG": "for the sidecar alone: where its configuration is; no agent sees it",
    }
)
"""Variables that Postroom sets in a sandbox."""


def option(key: str) -> Option:
    """The setting of that name."""
    if key not in BY_KEY:
        raise InvalidInput(
            f"there is no setting {key!r}",
            remedy=did_you_mean(key, BY_KEY, most=3) or "postroom config list",
        )
    return BY_KEY[key]

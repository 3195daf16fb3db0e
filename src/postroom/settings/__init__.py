"""How a post room runs: every default in one place, and the layout of the state folder.

Constants of the wire (subjects, streams, receipts) live with their rules in `postroom.protocol`; an operator's
settings live here. `options` names them, `sources` reads them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path

from platformdirs import user_state_path

from postroom.errors import EnvironmentFault
from postroom.protocol.ids import check_name

DEFAULT_NATS_PORT = 4222
DEFAULT_HTTP_PORT = 4280
DEFAULT_HTTPS_PORT = 4281
"""Of the API beyond loopback: every address at once (0.0.0.0) would clash with the loopback port."""
DEFAULT_GATEWAY_PORT = 4290
"""Of the gateway's listener for sandboxes on other machines."""
DEFAULT_GRPC_PORT = 4292
"""Of A2A over gRPC."""
DEFAULT_ORG = "default"
DEFAULT_PROJECT = "main"
SETTINGS_FILE = "postroom.toml"
"""Name of a file of settings, in the state folder and in the user's folder of configuration."""


def default_state() -> Path:
    """The state folder: `$POSTROOM_STATE`, else the user's XDG state folder.

    Raises:
        EnvironmentFault: neither the environment nor the user database names a home folder.
    """
    chosen = os.environ.get("POSTROOM_STATE", "")
    try:
        return Path(chosen) if chosen else user_state_path("postroom")
    except RuntimeError as error:
        raise EnvironmentFault(
            "there is no home folder for the state", remedy="set HOME, or choose with --state DIR"
        ) from error


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a post room; only the state folder has no default.

    Attributes:
        state: folder for keys, streams, database, workers; 0700.
        host: loopback address to listen on; `listen` names others.
        nats_port, http_port: 0 for any free one; None for the usual one, or any free one if that is taken.
        memory: keep streams and database in memory: everything is gone at the end.
        sandbox: name of the sandbox provider for templates that name none, `auto` for the strongest available.
        jwt_lifetime: seconds a worker's bus credential is valid.
        bwrap: the only bubblewrap program to use; None looks in the usual places.
        stop_grace: seconds a worker has to end before it is killed.
    """

    state: Path = field(default_factory=default_state)
    host: str = "127.0.0.1"
    nats_port: int | None = None
    http_port: int | None = None
    memory: bool = False
    sandbox: str = "auto"
    jwt_lifetime: float = 7 * 86400.0
    bwrap: Path | None = None
    stop_grace: float = 5.0
    stale_after: float = 300.0
    """Seconds after which a message that nobody took raises an alert."""
    blob_limit: int = 64 * 1024 * 1024
    """Bytes of the largest blob."""
    blobs_limit: int = 2 * 1024 * 1024 * 1024
    """Bytes of all blobs."""

    listen: tuple[str, ...] = ()
    """A further address to listen on, `ADDR[:PORT]`, that others can reach; TLS is demanded there."""
    public_urls: tuple[str, ...] = ()
    """URLs by which others reach the API through a proxy, a balancer or a tunnel."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and networks of proxies whose word on a client's address is taken."""
    tls: str = "auto"
    """`auto`: TLS where a connection can leave the machine; `always`: on loopback, too."""
    tls_cert: Path | None = None
    """Certificate (PEM, with its chain) that somebody else maintains; None for the local one."""
    tls_key: Path | None = None
    """Its key."""
    tls_ca: Path | None = None
    """The authority above it; None for those that this system trusts."""
    nats_urls: tuple[str, ...] = ()
    """Addresses of a NATS that somebody else runs; empty for the embedded one."""
    nats_ca: Path | None = None
    """Certificate of the authority that signed theirs; None for those that this machine trusts."""
    nats_server: Path | None = None
    """The program of the embedded one; None for the installed one."""
    database_url: str = field(default="", repr=False)
    """`postgresql://` address of the database for all organisations; "" for SQLite files in the state folder."""
    task_store: str = field(default="", repr=False)
    """`surrealdb+…` address of the tasks of all organisations; "" for the database that has everything else."""
    task_store_password: str = field(default="", repr=False)
    """Its password; or see the next."""
    task_store_password_file: Path | None = None
    """The file that holds its password."""
    gateway_listen: str = ""
    """`ADDR[:PORT]` where the gateway takes sandboxes of other machines, TLS only; "" for nowhere."""
    gateway_address: str = ""
    """`NAME[:PORT]` by which those sandboxes find it; "" for the one it listens on."""
    grpc_listen: str = ""
    """`ADDR[:PORT]` where A2A over gRPC is served; "" for nowhere."""
    grpc_address: str = ""
    """`NAME[:PORT]` by which clients of other machines find it; "" for the one it listens on."""
    opensandbox_url: str = ""
    """The OpenSandbox server for workers, "" for none."""
    opensandbox_key: str = field(default="", repr=False)
    """Its API key; or see the next."""
    opensandbox_key_file: Path | None = None
    """The file that holds its API key."""
    opensandbox_image: str = "postroom:latest"
    """The container image of workers there: Python and Postroom's dependencies."""
    opensandbox_python: str = "python3"
    """The Python in that image."""
    egress_private: tuple[str, ...] = ()
    """Private places that workers may be allowed to reach, each `host:port` or `network:port`."""
    egress_ca: Path | None = None
    """Further certificate authorities for what workers reach outside, PEM."""
    isolation: str = "enforced"
    """Least level of a wall for templates that state none."""
    audit: str = "strict"
    """`strict`: nothing passes whose audit record cannot be written; `lossy`: it does."""
    audit_file_bytes: int = 64 * 1024 * 1024
    """Size at which a file of the audit log is closed and the next one begun."""
    audit_files: int = 64
    """Closed files of the audit log that are kept."""
    keep_messages: str = "for ever"
    """How long, and how much of each project, messages that have ended are kept (`settings.keeping`)."""
    keep_tasks: str = "for ever"
    """The same for tasks."""
    keep_events: str = "for ever"
    """The same for the progress of tasks that have ended."""
    keep_posts: str = "for ever"
    """The same for posts."""
    keep_announcements: str = "for ever"
    """The same for announcements."""
    keep_audit: str = "for ever"
    """How long closed files of the audit log are kept."""
    keep_projects: tuple[str, ...] = ()
    """Rules of single projects."""
    notify: str = "bell"
    """How the screen calls a person who looks elsewhere: `off`, `bell`, `osc9` or `osc777`."""
    webhooks_retry: str = "300 1800 7200 18000 36000 36000"
    """Pauses in seconds from the fourth attempt of a delivery on."""
    violations: int = 20
    """Violations of one worker within ten minutes after which it is cut off."""
    limit_requests: int = 500
    """Requests a second of one API key, once `limit_burst` is used up."""
    limit_burst: int = 10_000
    """Requests of one API key that may come at once."""
    limit_strangers: int = 100
    """Requests a minute of one address without a valid key; so many may come at once."""
    limit_open: int = 100
    """Requests a minute of one API key that came by open registration; so many may come at once."""
    limit_streams: int = 2_000
    """Open streams of one API key."""
    limit_tasks: int = 10_000
    """Open tasks of one agent."""
    limit_pair: int = 20
    """Messages a minute of one sender to one recipient of another organisation, or one reached by grants alone."""
    limit_pair_bytes: int = 256 * 1024
    """Bytes of the parts of such a message."""
    limit_waiting: int = 10_000
    """Messages that may wait for such a recipient."""
    max_file_mb: int = 10
    """MB of a file that a worker has not committed and that comes back without being let in."""
    org: str = DEFAULT_ORG
    """The organisation of the folders; see `for_org`."""

    def for_org(self, org: str) -> Settings:
        """The settings of one organisation: its own database, snapshots, blobs and workers, all else shared.

        Raises:
            InvalidName: `org` is malformed, so it could lead out of the state folder.
        """
        return replace(self, org=check_name(org, "organisation"))

    @property
    def audit_lossy(self) -> bool:
        """Whether traffic goes on when its audit record cannot be written."""
        return self.audit == "lossy"

    # Layout of the state folder.
    @property
    def orgs(self) -> Path:
        """One folder per organisation but the default one."""
        return self.state / "orgs"

    @property
    def home(self) -> Path:
        """The folder of the organisation; the default one has the state folder itself."""
        return self.state if self.org == DEFAULT_ORG else self.orgs / self.org

    @property
    def tls_folder(self) -> Path:
        """The local certificate authority and its certificates."""
        return self.state / "tls"

    @property
    def credentials_file(self) -> Path:
        """Credentials that the gateway adds to workers' requests, 0600."""
        return self.keys / "credentials.json"

    @property
    def operator_key_file(self) -> Path:
        """The operator's API key, 0600."""
        return self.keys / "operator.key"

    @property
    def sealing_key_file(self) -> Path:
        """The key under which secrets in the database are sealed, 0600."""
        return self.keys / "sealing.key"

    @property
    def pins_file(self) -> Path:
        """What is kept of the PINs of the organisation's people, 0600."""
        return self.keys / f"pins-{self.org}.json"

    @property
    def audit_file(self) -> Path:
        """The audit log's current file; closed ones lie beside it."""
        return self.logs / "audit.jsonl"

    @property
    def file(self) -> Path:
        """The settings of this post room (`postroom config`), 0600."""
        return self.state / SETTINGS_FILE

    @property
    def bus_file(self) -> Path:
        """Names the bus with the organisation's log."""
        return self.home / "bus.json"

    @property
    def server_file(self) -> Path:
        """Address and operator credential of the running post room, 0600."""
        return self.state / "server.json"

    @property
    def socket_file(self) -> Path:
        """The owner's way to the running post room, 0600."""
        return self.state / "control.sock"

    @property
    def lock_file(self) -> Path:
        """Locked for as long as a post room has the folder open."""
        return self.state / "lock"

    @property
    def keys(self) -> Path:
        """Operator and account keys, 0600."""
        return self.state / "keys"

    @property
    def nats(self) -> Path:
        """Configuration, resolver and JetStream store of the embedded server."""
        return self.state / "nats"

    @property
    def accounts(self) -> Path:
        """Agents, keys, cards and workers of all organisations."""
        return self.state / "accounts.db"

    @property
    def database(self) -> Path:
        """The projection; the rows of blobs lie beside it."""
        return self.home / "projection.db"

    @property
    def snapshots(self) -> Path:
        """The verified copy of the projection that lets the log be shortened."""
        return self.home / "snapshots"

    @property
    def blobs(self) -> Path:
        """Content that is too large for messages, by its hash."""
        return self.home / "blobs"

    @property
    def workers(self) -> Path:
        """One folder per worker: workspace, sidecar state, files, log."""
        return self.home / "workers"

    @property
    def logs(self) -> Path:
        """Log of the control plane, of nats-server, and the audit log."""
        return self.state / "logs"

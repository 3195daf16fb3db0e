"""What an attacker tries, generated: from the table of subjects and the table of rights, never picked by hand.

An attacker is a worker with a valid credential and a client of its own. `own` is its uid, `victim` that of another
agent; a case in which the victim is somebody who does not exist must be answered in the same words.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from postroom.protocol.ids import CONTROL_PLANE
from postroom.protocol.permissions import (
    agent_permissions,
    allows,
    control_plane_edge_permissions,
    core_exports,
)
from postroom.protocol.streams import CARDS_BUCKET, PRESENCE_BUCKET, STREAMS
from postroom.protocol.subjects import feed_filters
from tests.identity.stage import LOBBY
from tests.identity.walk import forms, rights

OWN, VICTIM = "d" * 32, "b" * 32
"""Uids for who only counts the cases."""

MARK = b"from the attacker"

WILDCARDS = ("*", ">")

_STREAMS = (
    *(spec.name for spec in STREAMS),
    f"KV_{CARDS_BUCKET}",
    f"KV_{PRESENCE_BUCKET}",
    "OBJ_x",
)

# ── the server's own subjects ─────────────────────────────────────────────────────────────────────────────────

# Each subject of JetStream's API, as nats-server 2.12 to 2.14 subscribes to it; S is a stream, C a consumer.
_API = (
    *("INFO", "ACCOUNT.INFO", "ACCOUNT.PURGE.A", "SERVER.REMOVE", "META.LEADER.STEPDOWN"),
    *("STREAM.NAMES", "STREAM.LIST", "STREAM.TEMPLATE.NAMES", "STREAM.TEMPLATES"),
    *("STREAM.CREATE.S", "STREAM.UPDATE.S", "STREAM.INFO.S", "STREAM.DELETE.S", "STREAM.PURGE.S"),
    *("STREAM.RESTORE.S", "STREAM.SNAPSHOT.S", "STREAM.PEER.REMOVE.S", "STREAM.LEADER.STEPDOWN.S"),
    *("STREAM.MSG.GET.S", "STREAM.MSG.DELETE.S", "STREAM.TEMPLATE.CREATE.S"),
    *("STREAM.TEMPLATE.INFO.S", "STREAM.TEMPLATE.DELETE.S"),
    *("ACCOUNT.STREAM.MOVE.A.S", "ACCOUNT.STREAM.CANCEL_MOVE.A.S"),
    *("DIRECT.GET.S", "DIRECT.GET.S.worker.C.inbox.C", "DIRECT.GET.S.$KV.cards.default.agents.C"),
    *("CONSUMER.NAMES.S", "CONSUMER.LIST.S", "CONSUMER.CREATE.S", "CONSUMER.CREATE.S.C"),
    *("CONSUMER.CREATE.S.C.worker.C.inbox.*", "CONSUMER.CREATE.S.C.worker.C.inbox.C"),
    *("CONSUMER.DURABLE.CREATE.S.C", "CONSUMER.INFO.S.C", "CONSUMER.DELETE.S.C"),
    *("CONSUMER.PAUSE.S.C", "CONSUMER.RESET.S.C", "CONSUMER.UNPIN.S.C", "CONSUMER.MSG.NEXT.S.C"),
    "CONSUMER.LEADER.STEPDOWN.S.C",
)

_SYSTEM = (
    *("REQ.SERVER.PING", "REQ.SERVER.PING.CONNZ", "REQ.SERVER.PING.VARZ", "REQ.SERVER.PING.JSZ"),
    *("REQ.SERVER.PING.IDZ", "REQ.SERVER.A.STATSZ", "REQ.SERVER.A.KICK", "REQ.SERVER.A.RELOAD"),
    *("REQ.SERVER.A.LDM", "REQ.SERVER.A.PROFILEZ", "REQ.ACCOUNT.PING", "REQ.ACCOUNT.PING.CONNZ"),
    *("REQ.ACCOUNT.PING.STATZ", "REQ.ACCOUNT.A.INFO", "REQ.ACCOUNT.A.SUBSZ", "REQ.ACCOUNT.A.CONNZ"),
    *("REQ.ACCOUNT.A.CLAIMS.LOOKUP", "REQ.ACCOUNT.A.CLAIMS.UPDATE", "REQ.CLAIMS.PACK"),
    *(
        "REQ.CLAIMS.LIST",
        "REQ.CLAIMS.UPDATE",
        "REQ.CLAIMS.DELETE",
        "REQ.USER.AUTH",
        "REQ.USER.INFO",
    ),
    *("ACCOUNT.A.CONNECT", "ACCOUNT.A.DISCONNECT", "ACCOUNT.A.SERVER.CONNS", "DEBUG.SUBSCRIBERS"),
    *("SERVER.A.CLIENT.AUTH.ERR", "SERVER.A.SHUTDOWN", "SERVER.A.LAMEDUCK", "LATENCY.M2.A"),
)

_OTHERS = (
    *("$SRV.PING", "$SRV.INFO.x", "$SRV.STATS.x.y", "$MQTT.sub.x", "$MQTT.msgs.x", "$JSC.R.x"),
    *("$JS.EVENT.ADVISORY.API", "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.INBOX.C"),
    *(
        "$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.INBOX.C",
        "$JS.EVENT.METRIC.CONSUMER.ACK.INBOX.C",
    ),
    *("$JS.FC.INBOX.C.x", "$JS.FLOW.INBOX.C.x", "$JS.M.C", "$JS.SNAPSHOT.ACK.x.y", "$JS.D.x.y"),
    *("$JS.hub.API.INFO", "$JS.hub.API.CONSUMER.MSG.NEXT.INBOX.C", "$NRG.V.x", "$GNR.x", "$LDS.x"),
    *("_GR_.x.y.z", "_R_.x.y", "_INBOX.x", "_INBOX_x.y", f"$KV.{CARDS_BUCKET}.default.agents.C"),
    *(
        f"$KV.{CARDS_BUCKET}.acme.agents.C",
        f"$KV.{PRESENCE_BUCKET}.C",
        "$KV.x.y",
        "$O.x.C.y",
        "$O.x.M.y",
    ),
    *("stored.worker.C.tasks.x.y", "audit.C", "audit.-", "system.deadletter.worker.C.inbox.C"),
)


def _server(uids: tuple[str, ...]) -> Iterator[str]:
    for pattern in _API:
        for stream in _STREAMS if "S" in pattern.split(".") else ("",):
            for uid in uids if "C" in pattern.split(".") else ("",):
                yield "$JS.API." + ".".join(
                    {"S": stream, "C": uid}.get(token, token) for token in pattern.split(".")
                )
    for tail in _SYSTEM:
        yield f"$SYS.{tail}"
    for pattern in _OTHERS:
        for uid in uids:
            yield ".".join(uid if token == "C" else token for token in pattern.split("."))


def _acks(uids: tuple[str, ...]) -> Iterator[str]:
    """Where deliveries are acknowledged, in both forms that the server has."""
    for stream, uid in itertools.product(_STREAMS, uids):
        yield f"$JS.ACK.{stream}.{uid}.1.1.1.1700000000000000000.0"
        yield f"$JS.ACK.{stream}.{uid}"
        yield f"$JS.ACK._.hash.{stream}.{uid}.1.1.1.1700000000000000000.0.x"
        yield f"$JS.ACK.hub.hash.{stream}.{uid}.1.1.1.1700000000000000000.0.x"


# ── publishing ────────────────────────────────────────────────────────────────────────────────────────────────


def _twisted(own: str, victim: str) -> Iterator[str]:
    """Each right of one's own with one thing changed: a token gone, doubled, exchanged, spelt otherwise."""
    for pattern in agent_permissions(own, (LOBBY,)).publish:
        right = pattern.replace("*", victim).replace(">", "1.2")
        tokens = right.split(".")
        yield from (
            f"{right}.x",
            f"x.{right}",
            f"{right}.",
            f".{right}",
            right.upper(),
            f"{right}.>",
        )
        for at, token in enumerate(tokens):
            before, after = tokens[:at], tokens[at + 1 :]
            for other in (
                *((), (token, token), ("",), ("*",), (">",), (victim,), (CONTROL_PLANE,)),
                *((token.upper(),), (f"{token}x",), (f"x{token}",), (token[:-1],), (f"{token}*",)),
            ):
                yield ".".join([*before, *other, *after])


def _all(own: str, victim: str) -> set[str]:
    uids = (own, victim, CONTROL_PLANE)
    theirs = (
        *agent_permissions(victim, (LOBBY, "vault")).publish,
        *agent_permissions(victim, (LOBBY, "vault")).subscribe,
        *control_plane_edge_permissions().publish,
        *control_plane_edge_permissions().subscribe,
        *(export.subject for export in core_exports()),
        *(f.replace("*", uid) for uid in uids for f in feed_filters(("vault",))),
    )
    return {
        *forms((*uids, *WILDCARDS)),
        *rights(uids),
        *theirs,
        *_server(uids),
        *_acks(uids),
        *_twisted(own, victim),
    }


def _plain(subject: str) -> bool:
    return not any(c in "*>" for c in subject) and "" not in subject.split(".")


def publishes(own: str, victim: str) -> list[str]:
    """Subjects that the attacker may not publish on: all but its rights, and whatever holds a wildcard."""
    granted = agent_permissions(own, (LOBBY,)).publish
    return sorted(s for s in _all(own, victim) if s and not (_plain(s) and allows(granted, s)))


def plain_publishes(own: str, victim: str) -> list[str]:
    """Those of `publishes` that the server itself has to refuse: it takes a wildcard for what it is, a letter."""
    return [subject for subject in publishes(own, victim) if _plain(subject)]


ACKNOWLEDGEMENTS = (
    b"",
    b"+ACK",
    b"-NAK",
    b"+WPI",
    b"+TERM",
    b"+NXT",
    b'-NAK {"delay": 1}',
    b"+TERM x",
)


def acknowledgements(own: str, victim: str) -> list[tuple[str, bytes]]:
    """What can be said about somebody else's delivery."""
    subjects = [s for s in _acks((victim, CONTROL_PLANE)) if own not in s]
    return [(subject, said) for subject in subjects for said in ACKNOWLEDGEMENTS]


# ── answers ───────────────────────────────────────────────────────────────────────────────────────────────────


def carriers(own: str, victim: str) -> list[str]:
    """One subject of each right that the attacker has."""
    granted = agent_permissions(own, (LOBBY,)).publish
    return [pattern.replace("*", victim).replace(">", f"{'1' * 32}.working") for pattern in granted]


def replies(own: str, victim: str) -> list[tuple[str, str]]:
    """(subject, reply): where an answer may not be asked for; what is foreign, on one carrier each by turns, and what
    matters most on all of them."""
    mine = f"_I.{own}."
    foreign = [s for s in sorted(_all(own, victim)) if s and not s.startswith(mine)]
    worst = [
        f"_I.{victim}.js.x",
        f"_I.{victim}.{own}.x",
        f"worker.{victim}.inbox.{victim}",
        f"_I.{own}",
    ]
    found = list(zip(itertools.cycle(carriers(own, victim)), foreign, strict=False))
    return found + [(s, reply) for s in carriers(own, victim) for reply in worst]


# ── subscribing ───────────────────────────────────────────────────────────────────────────────────────────────


def _widened(subjects: Iterable[str]) -> Iterator[str]:
    """Each subject with every choice of its first tokens made a wildcard, and cut after each token."""
    for subject in subjects:
        tokens = subject.split(".")
        for choice in itertools.product((False, True), repeat=min(len(tokens), 5)):
            wide = ["*" if each else token for token, each in zip(tokens, choice, strict=False)]
            yield ".".join([*wide, *tokens[5:]])
        for end in range(len(tokens)):
            yield ".".join([*tokens[:end], ">"])
            yield ".".join([*("*" for _ in tokens[:end]), ">"])


def subscriptions(own: str, victim: str) -> list[tuple[str, str]]:
    """(subject, queue) that the attacker may not listen on."""
    mine = tuple(s.removesuffix(">") for s in agent_permissions(own, (LOBBY,)).subscribe)
    wide = _widened(s for s in forms((own, victim)) if not s.startswith("audit."))
    wanted = {*_all(own, victim), *wide, *_widened(agent_permissions(victim, (LOBBY,)).subscribe)}
    foreign = sorted(s for s in wanted if s and not s.startswith(mine))
    return [(subject, queue) for subject in foreign for queue in ("", "q")]


# ── headers ───────────────────────────────────────────────────────────────────────────────────────────────────


def headers(own: str, victim: str) -> list[bytes]:
    """Header blocks that no worker needs: the server's own headers, in several spellings, and broken blocks."""
    inbox = f"worker.{victim}.inbox.{own}"
    orders = {
        "Nats-Rollup": ("all", "sub"),
        "Nats-TTL": ("1s", "never", "0"),
        "Nats-Expected-Stream": ("INBOX", "TASKS"),
        "Nats-Expected-Last-Sequence": ("0", "1"),
        "Nats-Expected-Last-Msg-Id": ("x", ""),
        "Nats-Expected-Last-Subject-Sequence": ("0", "18446744073709551616x", "-1", ""),
        "Nats-Expected-Last-Subject-Sequence-Subject": (
            *(inbox, f"worker.{victim}.tasks.>", f"worker.{victim}.inbox.*", ">", "worker.>"),
            *(f"worker.*.tasks.{'1' * 32}.>", f"worker.{own}.tasks.>", f"worker.{own}.tasks.*.>"),
            f"system.alerts.{victim}",
        ),
        "Nats-Marker-Reason": ("MaxAge", "Purge", "Remove"),
        "Nats-Incr": ("+1",),
        "Nats-Counter-Sources": ("{}",),
        "Nats-Batch-Id": ("x",),
        "Nats-Batch-Sequence": ("1",),
        "Nats-Batch-Commit": ("1", "eob"),
        "Nats-Required-Api-Level": ("0", "9"),
        "Nats-Schedule": ("@at 2030-01-01T00:00:00Z", "@every 1s"),
        "Nats-Schedule-Target": (inbox,),
        "Nats-Schedule-TTL": ("1s",),
        "Nats-Schedule-Source": (inbox,),
        "Nats-Scheduler": (inbox,),
        "Nats-Schedule-Next": ("purge",),
        "Nats-Request-Info": ('{"user":"U","name_tag":"core"}',),
        "Nats-Response-Type": ("x",),
        "Nats-Trace-Dest": (inbox, f"_I.{victim}.js.x", f"_I.{own}.x"),
        "Nats-Trace-Only": ("true",),
        "Nats-Trace-Hop": ("1",),
        "Nats-Trace-Origin-Account": ("A",),
        "Nats-Stream": ("INBOX",),
        "Nats-Sequence": ("1",),
        "Nats-Subject": (inbox,),
        "Nats-Time-Stamp": ("2030-01-01T00:00:00Z",),
        "Nats-Last-Sequence": ("1",),
        "Nats-Last-Consumer": ("9",),
        "Nats-Last-Stream": ("9",),
        "Nats-Num-Pending": ("9",),
        "Nats-UpTo-Sequence": ("9",),
        "Nats-Consumer-Stalled": (inbox, f"$JS.ACK.INBOX.{victim}.1.1.1.1.1"),
        "Nats-Stream-Source": ("INBOX 1 > > x",),
        "Nats-Msg-Size": ("0",),
        "Nats-Pin-Id": ("x",),
        "Nats-Pending-Messages": ("0",),
        "Nats-Pending-Bytes": ("0",),
        "Nats-Server-Xkey": ("X",),
        "Nats-Msg-Id": ("", "a b", "x" * 129, "\x7f"),
        "Nats-Never-Heard-Of": ("1",),
    }
    found = []
    for name, values in orders.items():
        spellings = {name, name.lower(), name.upper()}
        for spelling, value in itertools.product(sorted(spellings), values):
            if spelling == "Nats-Expected-Last-Subject-Sequence" and value == "0":
                continue  # on its own tasks it may
            found.append(f"NATS/1.0\r\n{spelling}: {value}\r\n\r\n".encode())
            found.append(f"NATS/1.0\r\nX: y\r\n{spelling}:  {value}\r\n\r\n".encode())
    for status in (
        " 100",
        " 100 FlowControl Request",
        " 100 Idle Heartbeat",
        " 404",
        " 408",
        " 409",
        " 503",
    ):
        found.append(f"NATS/1.0{status}\r\n\r\n".encode())
        found.append(f"NATS/1.0{status} No Messages\r\nX: y\r\n\r\n".encode())
    twice = "Nats-Msg-Id: a\r\n"
    broken = (
        *(
            f"NATS/1.0\r\n{twice}{twice}\r\n",
            "NATS/1.1\r\n\r\nx",
            "nats/1.0\r\n\r\n",
            "NATS/1.0\n\nxxxx",
        ),
        *("NATS/1.0\r\nX\r\n\r\n", "NATS/1.0\r\nX : y\r\n\r\n", "NATS/1.0\r\n X: y\r\n\r\n"),
        *("NATS/1.0\r\nX: y\r\n z\r\n\r\n", "NATS/1.0\r\nX: y\nNats-Rollup: all\r\n\r\n"),
        *(
            "NATS/1.0\r\nX: y\rNats-Rollup: all\r\n\r\n",
            "NATS/1.0\r\nX: \0\r\n\r\n",
            "\r\n\r\nxxxxxxxx",
        ),
        *(
            "NATS/1.0\r\n\r\nNats-Rollup: all\r\n\r\n",
            "NATS/1.0\r\nX: y\r\n",
            "NATS/1.0\r\n: y\r\n\r\n",
        ),
        *(
            "x" * 12,
            "NATS/1.0\r\nX: " + "y" * 5000 + "\r\n\r\n",
            "NATS/1.0\r\n" + "X: y\r\n" * 900 + "\r\n",
        ),
    )
    found += [block.encode() for block in broken]
    return found


# ── frames ────────────────────────────────────────────────────────────────────────────────────────────────────


def frames(own: str, victim: str) -> list[bytes]:
    """Frames that break a rule of the one spelling; after each comes a foreign publish that must not be read."""
    mine, inbox = f"worker.{victim}.rpc.{own}", f"_I.{own}.x"
    body, block = "\r\nok\r\n", "\r\nNATS/1.0\r\n\r\nok\r\n"
    lines = {
        f"PUB {mine} 2": body,
        f"PUB {mine} {inbox} 2": body,
        f"HPUB {mine} 12 14": block,
        f"HPUB {mine} {inbox} 12 14": block,
        f"SUB {inbox} 7": "\r\n",
        f"SUB {inbox} q 7": "\r\n",
        "UNSUB 7": "\r\n",
        "UNSUB 7 3": "\r\n",
        "PING": "\r\n",
        "PONG": "\r\n",
    }
    found = []
    for line, rest in lines.items():
        verb, _, fields = line.partition(" ")
        last = line.rpartition(" ")[2]
        said = [
            *(line.replace(verb, verb.lower(), 1), line.replace(verb, verb.title(), 1), f" {line}"),
            *(
                f"\t{line}",
                f"{line}\t",
                f"{line} ",
                f"{line}  x",
                f"{line}\0",
                f"{line}\x0b",
                f"{line}\x85",
            ),
            *(f"\r\n{line}", f"\n{line}", f"{line}\r", f"{line} x x x x", f"{verb}x {fields}"),
        ]
        if fields:
            said += [
                verb,
                f"{verb} ",
                f"{verb}\t{fields}",
                f"{verb}  {fields}",
                line.replace(" ", "\t"),
            ]
            said += [f"{verb}{fields}", line.replace(" ", "\xa0", 1)]
        if last.isdigit():
            head = line.removesuffix(last)
            digits = ("-1", "+2", "0x2", "2.0", "2,", "1e1", "9" * 21, "٢", "2 2 2", "")
            # A number of a subscription is a name, and any digits will do.
            name = verb == "SUB" or line.count(" ") == 1
            said += [
                head + each for each in (*digits, *(() if name else (f"0{last}", f"00{last}")))
            ]
        found += [
            each + rest for each in said if each not in (line, "UNSUB 7 ")
        ]  # an empty number of messages is none
        if rest != "\r\n":
            found += [
                line + rest[:-2] + end for end in ("\n", "\r", " \r\n", "x\r\n", "\n\r", "\0\r\n")
            ]
            found += [line + "\n" + rest[2:], line + "\r" + rest[2:], line + "\r\r\n" + rest[2:]]
    found += [
        f"{verb}\r\n"
        for verb in ("+OK", "-ERR 'x'", "INFO {}", "MSG x 1 0\r\n", "HMSG x 1 0 0\r\n")
    ]
    found += [
        f"{verb} x y z 0\r\n\r\n" for verb in ("RMSG", "LMSG", "RS+", "LS+", "A+", "X", "GET", "")
    ]
    found += [
        f"HPUB {mine} {header} {size}\r\n{'x' * 20}\r\n"
        for header, size in (
            (0, 2),
            (1, 2),
            (11, 14),
            (15, 14),
            (14, 12),
            ("", 14),
            (12, ""),
            ("x", 14),
        )
    ]
    found += [
        f"PUB {mine} {size}\r\n" for size in (1048577, 67108864, 67108865, 999999999, 1000000000)
    ]
    found += [f"HPUB {mine} 12 {size}\r\n" for size in (1048577, 999999999, 1000000000)]
    found += [
        "CONNECT {}\r\n",
        'CONNECT {"verbose":true}\r\n',
        "GET / HTTP/1.1\r\n",
        "\x16\x03\x01\x02\0\r\n",
    ]
    found += [f"PUB {'x' * 5000} 2\r\nok\r\n", f"SUB {'x.' * 3000}x 1\r\n", "x" * 40_000]
    return sorted({each.encode("latin-1", "replace") for each in found})


FIRST_LINES = (
    *(
        b"CONNECT {}\r\n",
        b"CONNECT []\r\n",
        b"CONNECT {\r\n",
        b"CONNECT null\r\n",
        b'CONNECT {"jwt":1}\r\n',
    ),
    *(
        b'CONNECT {"jwt":"a.b.c"}\r\n',
        b'CONNECT {"jwt":"a","jwt":"b"}\r\n',
        b"CONNECT\r\n",
        b"CONNECT \r\n",
    ),
    *(
        b"CONNECT " + b"[" * 30_000 + b"\r\n",
        b"CONNECT " + b'{"a":' * 5000 + b"\r\n",
        b"\r\n",
        b"\n",
    ),
    *(
        b"PING\r\n",
        b"PONG\r\n",
        b"PUB a 0\r\n\r\n",
        b"SUB > 1\r\n",
        b"INFO {}\r\n",
        b"connect {}\r\n",
    ),
    *(
        b" CONNECT {}\r\n",
        b"CONNECT\t{}\r\n",
        b"CONNECT {}\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"x" * 40_000,
    ),
    *(
        b'CONNECT {"user":"a","pass":"b"}\r\n',
        b'CONNECT {"auth_token":"x"}\r\n',
        b'CONNECT {"nkey":"U"}\r\n',
    ),
    *(
        b'CONNECT {"jwt":"\\u0000"}\r\n',
        b'CONNECT {"jwt":null}\r\n',
        b'CONNECT {"sig":"x"}\r\n',
        b"\x16\x03\x01\r\n",
    ),
)
"""What comes where a worker has to say who it is, and does not."""

PREFACES = (
    *(b"\n", b"\r\n", b"x\n", b"POSTROOM/1\n", b"POSTROOM/1 nats\n", b"POSTROOM/1 nats \n"),
    *(
        b"POSTROOM/2 nats {t}\n",
        b"postroom/1 nats {t}\n",
        b"POSTROOM/1 NATS {t}\n",
        b"POSTROOM/1 nats {t} \n",
    ),
    *(
        b" POSTROOM/1 nats {t}\n",
        b"POSTROOM/1  nats {t}\n",
        b"POSTROOM/1\tnats\t{t}\n",
        b"POSTROOM/1 nats {t}\r\n",
    ),
    *(
        b"POSTROOM/1 nats {t}\0\n",
        b"POSTROOM/1 nats {t} x\n",
        b"POSTROOM/1 tunnel {t}\n",
        b"POSTROOM/1 ssh {t}\n",
    ),
    *(
        b"POSTROOM/1 nats {o}\n",
        b"POSTROOM/1 http {o}\n",
        b"POSTROOM/1 egress {o}\n",
        b"POSTROOM/1 nats {n}\n",
    ),
    *(
        b"POSTROOM/1 http {n}\n",
        b"POSTROOM/1 egress {n}\n",
        b"POSTROOM/1 nats {u}\n",
        b"POSTROOM/1 nats -\n",
    ),
    *(
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"CONNECT {}\r\n",
        b"PING\r\n",
        b"\x16\x03\x01\x02\0\n",
        b"\0" * 300,
    ),
    *(b"POSTROOM/1 nats " + b"x" * 300 + b"\n", b"x" * 1000, "POSTROOM/1 nats é\n".encode(), b""),
)
"""First lines that open no door: {t} is the worker's own token, {o} that of another worker, {n} nobody's, {u} a uid."""

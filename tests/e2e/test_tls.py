"""A post room with TLS on every connection: nothing on the wire can be read, and all commands work as before."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from postroom.client.http import Client
from postroom.client.locate import ServerAddress
from postroom.errors import ProtocolViolation
from postroom.identity.certfolder import CertificateFolder
from postroom_a2a.times import parse_time
from tests.e2e.conftest import DEADLINE, EXAMPLES, PostRoom, running_room, until

ECHO = str(EXAMPLES / "echo.toml")
CLEARTEXT = (b"CONNECT {", b"INFO {", b"HTTP/1.1", b"PUB ", b"MSG ", b"PING", b"Bearer", b"eyJ")
"""What every connection would show without TLS; `eyJ` begins each JWT."""
HANDSHAKE = b"\x16\x03"
"""First bytes of a TLS record that begins a handshake."""


@pytest.fixture
def always(room: PostRoom) -> PostRoom:
    room.env["POSTROOM_TLS"] = "always"
    return room


@pytest.fixture(scope="module")
def encrypted() -> Iterator[PostRoom]:
    """One with TLS on every connection that is up, for the tests of this module."""
    with running_room(POSTROOM_TLS="always") as room:
        yield room


def converse(room: PostRoom, marker: str) -> None:
    """What a person does: a worker, a message, its answer, a look at all of it."""
    room.run("spawn", ECHO)
    answer = room.run("send", "@echo", marker, "--wait", "answered")
    assert marker in answer
    room.run("status")
    room.run("delegate", "@echo", marker, status=0)


def check(captured: bytes, marker: str) -> None:
    assert HANDSHAKE in captured
    for word in (marker.encode(), *CLEARTEXT):
        assert word not in captured, word


@contextmanager
def relayed(room: PostRoom) -> Generator[None]:
    """The post room behind a relay; see `relayed.py`."""
    reading, writing = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.e2e.relayed", str(room.state), str(room.scratch)],
        env=room.env | {"POSTROOM_READY_FD": str(writing)},
        cwd=Path(__file__).parents[2],
        pass_fds=(writing,),
    )
    os.close(writing)
    with os.fdopen(reading) as ready:
        assert ready.readline() == "ready\n"
    try:
        yield
    finally:
        process.terminate()
        process.wait(DEADLINE)


@pytest.mark.slow
@pytest.mark.requirement("tls-beyond-loopback")
def test_nothing_that_passes_between_clients_and_servers_can_be_read(always: PostRoom) -> None:
    marker = f"secret-{secrets.token_hex(8)}"
    with relayed(always):
        converse(always, marker)

    for name in ("nats", "http"):
        captured = (always.scratch / f"{name}.bytes").read_bytes()
        assert len(captured) > 10_000
        check(captured, marker)


@pytest.mark.slow
def test_the_relay_would_have_found_what_is_readable(room: PostRoom) -> None:
    marker = f"secret-{secrets.token_hex(8)}"
    with relayed(room):
        converse(room, marker)

    nats, http = ((room.scratch / f"{name}.bytes").read_bytes() for name in ("nats", "http"))
    assert all(word in nats for word in (marker.encode(), b"CONNECT {", b"INFO {", b"PUB ", b"eyJ"))
    assert all(word in http for word in (marker.encode(), b"HTTP/1.1", b"Bearer"))


class Sniffer:
    """Every TCP packet on loopback that has one of `ports`, as root sees it."""

    def __init__(self) -> None:
        self.packets: list[bytes] = []
        all_protocols = 0x0003
        self._socket = socket.socket(
            socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(all_protocols)
        )
        self._socket.bind(("lo", 0))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024 * 1024)
        self._socket.settimeout(0.2)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                self.packets.append(self._socket.recv(65536))
            except TimeoutError:
                continue

    def end(self, ports: set[int]) -> bytes:
        """The payloads of the packets of these ports."""
        self._ending.set()
        self._thread.join(DEADLINE)
        self._socket.close()
        return b"\n".join(self._payload(packet, ports) for packet in self.packets)

    @staticmethod
    def _payload(packet: bytes, ports: set[int]) -> bytes:
        if packet[0] >> 4 != 4 or packet[9] != socket.IPPROTO_TCP:
            return b""
        tcp = packet[(packet[0] & 15) * 4 :]
        if not ports & {int.from_bytes(tcp[:2]), int.from_bytes(tcp[2:4])}:
            return b""
        return tcp[(tcp[12] >> 4) * 4 :]


@pytest.mark.skipif(
    os.geteuid() != 0 or not hasattr(socket, "AF_PACKET"), reason="only root may listen to packets"
)
def test_a_sniffer_on_loopback_reads_nothing(always: PostRoom) -> None:
    marker = f"secret-{secrets.token_hex(8)}"
    try:
        sniffer = Sniffer()
    except PermissionError:
        pytest.skip("only root may listen to packets")
    always.up()
    ports = {int(always.server[key].rpartition(":")[2]) for key in ("url", "nats_url")}

    converse(always, marker)

    captured = sniffer.end(ports)
    assert len(captured) > 20_000
    check(captured, marker)


@pytest.mark.requirement("tls-beyond-loopback")
def test_commands_work_over_tls_and_trust_the_local_authority_alone(
    encrypted: PostRoom, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = encrypted.server
    assert server["url"].startswith("https://127.0.0.1:")
    assert server["nats_url"].startswith("tls://127.0.0.1:")
    assert server["ca"] == str(encrypted.state / "tls" / "ca.pem")
    encrypted.run("spawn", ECHO)
    assert "you said" in encrypted.run("send", "@echo", "hello", "--wait", "answered")

    other = CertificateFolder(encrypted.scratch / "other")
    other.init((), days=90, now=time.time())
    monkeypatch.setenv("POSTROOM_CA", str(other.ca))
    with Client.at(encrypted.state) as near:
        assert near.status()["version"]  # by its socket, whose peer is known
    strange = ServerAddress(server["url"], 0, server["token"], str(other.ca))
    with pytest.raises(ProtocolViolation, match="not the post room"):
        Client.on(lambda: strange).status()


@pytest.mark.requirement("tls-beyond-loopback")
def test_the_bus_comes_back_with_tls_after_it_was_killed(encrypted: PostRoom) -> None:
    encrypted.run("spawn", ECHO, "--name", "other")
    pid = encrypted.server["nats_pid"]

    os.kill(pid, signal.SIGKILL)
    until(lambda: encrypted.server["nats_pid"] != pid)

    assert "you said" in encrypted.run("send", "@other", "hello", "--wait", "answered")


@pytest.mark.slow
@pytest.mark.requirement("tls-beyond-loopback")
@pytest.mark.requirement("mend-tls-log")
def test_beyond_loopback_it_starts_with_a_certificate_only(room: PostRoom) -> None:
    room.run("up", "--detach", "--listen", "0.0.0.0:0", status=2)
    assert "postroom tls init --host" in room.stderr
    room.run("tls", "init", "--host", "192.0.2.7")
    room.run("up", "--detach", "--listen", "192.0.2.8", status=2)
    assert "does not stand for 192.0.2.8" in room.stderr

    said = room.run("up", "-d", "--port=0", "--nats-port=0", "--listen", "0.0.0.0:0")

    for url in room.server["listen"]:
        assert f"  for others: {url}\n" in said
    assert room.server["url"].startswith("http://127.0.0.1:")
    listen = room.server["listen"]
    assert {"https://192.0.2.7", "tls://192.0.2.7"} == {
        url.rpartition(":")[0] for url in listen if "192.0.2.7" in url
    }
    room.run("spawn", ECHO)
    assert "you said" in room.run("send", "@echo", "hello", "--wait", "answered")
    room.run("restart", "echo")
    room.run("down")
    assert "eof_received" not in (room.state / "logs" / "up.log").read_text()


@pytest.mark.requirement("tls-local-authority")
def test_a_running_post_room_shows_a_renewed_certificate(encrypted: PostRoom) -> None:
    before = encrypted.json("status")["server"]["tls"]["fingerprint"]

    encrypted.run("tls", "renew")

    until(lambda: encrypted.json("status")["server"]["tls"]["fingerprint"] != before)
    assert encrypted.json("status")["alerts"] == []


@pytest.mark.requirement("tls-local-authority")
def test_tls_status_tells_whom_certificates_stand_for_and_when_they_end(room: PostRoom) -> None:
    room.run("tls", "status", status=4)
    room.run("tls", "init", "--host", "box.example.org")
    room.run("tls", "init", status=5)

    authority, certificate = room.json("tls", "status")["certificates"]
    assert authority["kind"] == "authority"
    assert "box.example.org" in certificate["names"]
    assert certificate["state"] == "valid"
    assert len(certificate["fingerprint"]) == 64

    CertificateFolder(room.state / "tls").renew(
        now=parse_time(certificate["not_before"]) - 100 * 86400
    )
    assert "expired" in room.run("tls", "status", status=10)


def test_the_certificate_of_somebody_else_is_shown(room: PostRoom) -> None:
    other = CertificateFolder(room.scratch / "other")
    other.init(["192.0.2.7"], days=90, now=time.time())
    room.up(
        "--listen=0.0.0.0:0",
        f"--tls-cert={other.server}",
        f"--tls-key={other.server}",
        f"--tls-ca={other.ca}",
    )

    assert room.json("status")["server"]["tls"]["local"] is False
    assert room.server["ca"] == str(other.ca)

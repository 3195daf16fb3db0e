"""Makes a network whose only link ends in itself, then becomes the program in it: `dummy_network.py PARENT -- argv`.

The program gets a network namespace with loopback, an interface with a routable address, and a default route. Both ends
of the link (a veth pair) lie in that namespace, and the far one has no address: packets arrive nowhere. So the host has
nothing to filter, to flush or to clean up: the kernel removes the interfaces with the last process of the namespace
(network_namespaces(7)).

The script needs the real root, runs by its file name and imports the standard library only. It ends with the process
PARENT.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import struct
import sys

ADDRESS, GATEWAY, PREFIX = "10.200.0.2", "10.200.0.1", 30
NEAR, FAR = "eth0", "far0"

CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG = 1
COULD_NOT_WIRE = 126

# rtnetlink(7), netlink(7), linux/veth.h
NEW_LINK, NEW_ADDRESS, NEW_ROUTE, ERROR = 16, 20, 24, 2
REQUEST, ACKNOWLEDGE, CREATE = 0x1, 0x4, 0x600  # CREATE with "and it must be new"
IFLA_NAME, IFLA_LINKINFO, INFO_KIND, INFO_DATA, VETH_PEER = 3, 18, 1, 2, 1
IFA_ADDRESS, IFA_LOCAL, RTA_OIF, RTA_GATEWAY = 1, 2, 4, 5
MAIN_TABLE, FROM_BOOT, UNICAST = 254, 3, 1
UP = 1


def _attribute(kind: int, content: bytes) -> bytes:
    padding = bytes(-len(content) % 4)
    return struct.pack("=HH", 4 + len(content), kind) + content + padding


def _link(index: int = 0, flags: int = 0) -> bytes:
    return struct.pack("=BxHiII", socket.AF_UNSPEC, 0, index, flags, flags)


def _ask(wire: socket.socket, kind: int, flags: int, body: bytes) -> None:
    header = struct.pack("=IHHII", 16 + len(body), kind, REQUEST | ACKNOWLEDGE | flags, 1, 0)
    wire.send(header + body)
    answer = wire.recv(4096)
    (kind,) = struct.unpack_from("=H", answer, 4)
    (number,) = struct.unpack_from("=i", answer, 16)
    if kind != ERROR or number != 0:
        raise OSError(-number, f"network: {os.strerror(-number)}")


def _raise(wire: socket.socket, name: str) -> None:
    _ask(wire, NEW_LINK, 0, _link(socket.if_nametoindex(name), UP))


def make_network() -> None:
    """Move this process into a network namespace with a link in it; raises OSError if it may not."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"network namespace: {os.strerror(number)}")
    far = _link() + _attribute(IFLA_NAME, FAR.encode() + b"\0")
    data = _attribute(INFO_DATA, _attribute(VETH_PEER, far))
    pair = _attribute(IFLA_NAME, NEAR.encode() + b"\0")
    pair += _attribute(IFLA_LINKINFO, _attribute(INFO_KIND, b"veth\0") + data)
    local, gateway = (socket.inet_aton(text) for text in (ADDRESS, GATEWAY))
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as wire:
        wire.bind((0, 0))
        _ask(wire, NEW_LINK, CREATE, _link() + pair)
        for name in ("lo", NEAR, FAR):
            _raise(wire, name)
        near = socket.if_nametoindex(NEAR)
        address = struct.pack("=BBBBi", socket.AF_INET, PREFIX, 0, 0, near)
        address += _attribute(IFA_LOCAL, local) + _attribute(IFA_ADDRESS, local)
        _ask(wire, NEW_ADDRESS, CREATE, address)
        table = (MAIN_TABLE, FROM_BOOT, 0, UNICAST)
        route = struct.pack("=BBBBBBBBI", socket.AF_INET, 0, 0, 0, *table, 0)
        route += _attribute(RTA_GATEWAY, gateway) + _attribute(RTA_OIF, struct.pack("=i", near))
        _ask(wire, NEW_ROUTE, CREATE, route)


def main(argv: list[str]) -> None:
    """Make the network and run the program in this process's place."""
    parent, separator, *command = argv
    if separator != "--" or not command:
        raise SystemExit("usage: dummy_network.py PARENT -- program [argument...]")
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != int(parent):
        raise SystemExit(1)  # the parent ended before the kernel could signal its death
    try:
        make_network()
    except OSError as error:
        sys.stderr.write(f"dummy network: {error.strerror}\n")
        raise SystemExit(COULD_NOT_WIRE) from error
    os.execv(command[0], command)  # noqa: S606 (no shell is wanted)


if __name__ == "__main__":
    main(sys.argv[1:])

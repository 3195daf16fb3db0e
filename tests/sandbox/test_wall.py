from __future__ import annotations

import os
import socket

import pytest

from postroom.sandbox import canary, selftest
from postroom.sandbox.bubblewrap import BubblewrapProvider
from postroom.sandbox.plain import PlainProvider
from postroom.sandbox.port import Level
from postroom.sandbox.selftest import KINDS, Canaries, CanaryResult, WallReport
from postroom.sandbox.wall_test import self_test

pytestmark = pytest.mark.anyio

KERNEL_MAY_LACK = {
    "vsock": lambda: selftest._attempt(selftest._vsock),
    "io_uring": selftest._io_uring,
    "mptcp": lambda: selftest._attempt(
        lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262).close()
    ),
    # A user who is not root has no capability to look past the protection of a process.
    "secret": lambda: os.geteuid() == 0,
    "kernel": lambda: os.geteuid() == 0,
    "namespace": lambda: selftest._in_child(selftest._splits_off),
}


@pytest.mark.requirement("sandbox-canary-unreachable")
@pytest.mark.parametrize("kind", KINDS)
async def test_from_inside_the_canary_cannot_be_reached(kind: str):
    async with canary.CanaryServer() as server:
        report = await self_test(BubblewrapProvider(), server)

        tried = [result for result in report.canaries if result.kind == kind]
        assert tried
        assert not any(result.reached for result in tried)
        assert server.visits.total() == 0


@pytest.mark.parametrize("kind", KINDS)
async def test_without_a_wall_the_same_canary_is_reached(kind: str):
    if kind in KERNEL_MAY_LACK and not KERNEL_MAY_LACK[kind]():
        pytest.skip(f"this kernel has no {kind}")
    async with canary.CanaryServer() as server:
        report = await self_test(PlainProvider(), server)

        tried = [result for result in report.canaries if result.kind == kind]
        assert tried
        assert all(result.reached for result in tried)


async def test_from_inside_the_gateway_socket_is_reached():
    async with canary.CanaryServer() as server:
        report = await self_test(BubblewrapProvider(), server)

        assert report.gateway
        assert server.gateway_visits == 1


async def test_without_a_wall_the_host_counts_the_visits():
    async with canary.CanaryServer() as server:
        await self_test(PlainProvider(), server)

        assert {"tcp", "udp", "abstract", "socket"} == set(server.visits)


@pytest.mark.requirement("sandbox-select-failclosed")
async def test_the_probe_of_bubblewrap_states_that_the_wall_is_enforced():
    assert (await BubblewrapProvider().probe()).level is Level.ENFORCED


async def test_the_probe_of_the_plain_provider_states_that_there_is_no_wall():
    assert (await PlainProvider().probe()).level is Level.NONE


def test_the_canaries_survive_the_way_into_the_sandbox():
    canaries = Canaries(
        tcp=(("127.0.0.1", 1),),
        udp=(("::1", 2),),
        abstract=("a",),
        sockets=("/s",),
        files={"/f": (3, 4)},
        process=(5, 6),
        gateway="/g",
    )

    assert Canaries.from_json(canaries.to_json()) == canaries


def test_a_wall_does_not_hold_when_a_canary_was_reached():
    assert not WallReport((CanaryResult("tcp", "127.0.0.1 1", True),), gateway=True).holds


def test_a_wall_does_not_hold_when_the_gateway_was_not_reached():
    assert not WallReport((CanaryResult("tcp", "127.0.0.1 1", False),), gateway=False).holds


def test_the_canaries_stand_on_loopback_and_on_the_address_used_for_the_outside():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no way to the outside")
        outward = sock.getsockname()[0]

    assert {"127.0.0.1", outward} <= set(canary.own_addresses())

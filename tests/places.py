"""The tests that stand where somebody of the threat model stands (docs/security.md), with what they have and no more.

A file is named under a place if tests in it act from there: through a worker's door or from inside a sandbox, with a
lesser key, as another account, with a copied credential, on the wire. `tests/manifest/test_security.py` holds that each
promise against somebody has such a test.
"""

from __future__ import annotations

PLACES: dict[str, tuple[str, ...]] = {
    # A worker with a valid credential and a client of its own, at the server, at its door or in its sandbox; an agent
    # whose words are shown to people.
    "an agent gone bad": (
        "tests/attack/",
        "tests/gateway/",
        "tests/sandbox/test_attack.py",
        "tests/sandbox/test_inside.py",
        "tests/sandbox/test_wall.py",
        "tests/identity/test_two_accounts.py",
        "tests/bus/test_contract.py",
        "tests/bus/test_nats.py",
        "tests/control/test_agent_requests.py",
        "tests/control/test_agent_task_requests.py",
        "tests/control/test_blobs.py",
        "tests/control/test_served_card.py",
        "tests/sidecar/test_lifecycle.py",
        "tests/e2e/test_one_door.py",
        "tests/attach/test_raw.py",
        "tests/attach/test_rows.py",
        "tests/tui/real/test_terminal.py",
        "tests/tui/rowlog/test_hostile.py",
        "tests/tui/needs/",
        "tests/tui/notify/test_notify.py",
    ),
    # A key of a person or a program, with some scopes, over the API of a real post room.
    "a person with a lesser key": (
        "tests/e2e/test_reach.py",
        "tests/e2e/test_pin_doors.py",
        "tests/e2e/test_people.py",
        "tests/e2e/test_orgs.py",
        "tests/e2e/test_approvals.py",
        "tests/approvals/test_pin.py",
        "tests/control/test_keys.py",
        "tests/control/test_body_bounds.py",
        "tests/metrics/test_refusals.py",
        "tests/sandbox/test_never.py",
    ),
    # Without a key, or with one of open registration, over the API of a real post room.
    "a stranger": (
        "tests/control/test_joining.py",
        "tests/control/test_strangers.py",
        "tests/e2e/test_joining.py",
    ),
    # Repositories, layouts, links and programs as a worker leaves them, met by git and other programs of the host.
    "a folder that a worker could write": (
        "tests/workspaces/test_hostile.py",
        "tests/workspaces/test_layouts.py",
        "tests/workspaces/test_planted.py",
        "tests/sandbox/test_set_id.py",
        "tests/sandbox/test_never.py",
    ),
    # A program of others that speaks to us over a real socket, as badly as it likes.
    "a peer that lies or leaves": (
        "a2a/tests/library/nats/test_deaf.py",
        "a2a/tests/library/nats/test_refusals.py",
        "a2a/tests/library/test_json_bounds.py",
        "tests/bus/test_cluster_faults.py",
        "tests/control/test_body_bounds.py",
        "tests/remote/test_remote.py",
    ),
    # A credential, token or key that was copied, used elsewhere, again or after its end.
    "a thief": (
        "tests/attack/test_replays.py",
        "tests/attack/test_frames.py",
        "tests/gateway/",
        "tests/identity/test_connecting.py",
        "tests/identity/test_revocation.py",
        "tests/control/test_audit.py",
        "tests/control/test_keys.py",
        "tests/e2e/test_people.py",
        "tests/e2e/test_revoking.py",
    ),
    # A process without any key: of another uid where permissions decide, else on loopback.
    "another account of this machine": (
        "tests/e2e/test_near.py",
        "tests/e2e/test_spawning.py",
        "tests/e2e/test_strangers.py",
        "tests/sandbox/test_stranger.py",
        "tests/metrics/test_refusals.py",
        "tests/identity/test_connecting.py",
        "tests/sidecar/test_a2a_server.py",
    ),
    # Who reads and answers on the way: clear text looked for on the wire, servers of another authority, forged headers.
    "a listener on the network": (
        "tests/bus/test_stripping.py",
        "tests/bus/test_tls.py",
        "tests/client/test_tls.py",
        "tests/cli/test_login.py",
        "tests/control/test_behind_proxy.py",
        "tests/control/test_endpoints.py",
        "tests/e2e/test_tls.py",
    ),
    "the operator of a NATS that is not ours": (
        "tests/bus/test_external.py",
        "tests/cli/test_nats.py",
    ),
}

HEADINGS = {
    "a thief": "who has stolen a credential",
    "the operator of a NATS that is not ours": "who runs somebody else's NATS",
}
"""Places whose heading, behind "Against", has other words than the table."""

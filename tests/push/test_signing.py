"""Signatures of pushes, checked by the reference library of Standard Webhooks, and by the public key."""

from __future__ import annotations

import base64
import time

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from standardwebhooks import Webhook, WebhookVerificationError

from postroom.webhooks.signing import WebhookKey

KEY = WebhookKey.derive("secret of the installation", "default")
BODY = '{"statusUpdate": {"text": "größer"}}'.encode()


@pytest.mark.requirement("pushes-not-lost")
def test_the_reference_library_takes_what_is_signed_and_nothing_that_was_changed():
    now = time.time()
    headers = dict(KEY.headers([KEY.secret("anna")], "push_1", now, BODY))
    anna = Webhook(KEY.secret("anna"))
    assert anna.verify(BODY, headers) == {"statusUpdate": {"text": "größer"}}
    wrong = [
        (BODY + b" ", headers),
        (BODY, headers | {"webhook-id": "push_2"}),
        (BODY, headers | {"webhook-timestamp": str(int(now) - 1)}),
        (BODY, dict(KEY.headers([KEY.secret("anna")], "push_1", now - 3600, BODY))),
        (BODY, dict(KEY.headers([KEY.secret("bert")], "push_1", now, BODY))),
    ]
    for body, given in wrong:
        with pytest.raises(WebhookVerificationError):
            anna.verify(body, given)


@pytest.mark.requirement("pushes-not-lost")
def test_who_has_the_public_key_alone_checks_the_same_request():
    headers = dict(KEY.headers([KEY.secret("anna")], "push_1", 1700000000.9, BODY))
    assert headers["webhook-timestamp"] == "1700000000"
    (given,) = [s for s in headers["webhook-signature"].split() if s.startswith("v1a,")]
    signature = base64.b64decode(given.removeprefix("v1a,"))
    raw = base64.b64decode(KEY.public.removeprefix("whpk_"))
    assert KEY.jwk["x"] == base64.urlsafe_b64encode(raw).decode().rstrip("=")
    public = Ed25519PublicKey.from_public_bytes(raw)
    public.verify(signature, b"push_1.1700000000." + BODY)
    with pytest.raises(InvalidSignature):
        public.verify(signature, b"push_2.1700000000." + BODY)


def test_each_caller_and_each_organisation_has_a_secret_of_its_own_and_it_stays_the_same():
    again = WebhookKey.derive("secret of the installation", "default")
    other = WebhookKey.derive("secret of the installation", "other")
    assert KEY.secret("anna") == again.secret("anna")
    found = {key.secret(who) for key in (KEY, other) for who in ("anna", "bert")}
    assert len(found) == 4
    assert all(secret.startswith("whsec_") for secret in found)
    assert KEY.public != other.public


def test_no_repr_shows_a_key():
    assert "seed" not in repr(KEY)
    assert repr(KEY.seed) not in repr(KEY)

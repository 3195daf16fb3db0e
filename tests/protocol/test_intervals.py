"""Who waits waits for longer than the other side is silent."""

from __future__ import annotations

from postroom.client.calls import POLL
from postroom.client.rules import ANSWER_TIMEOUT
from postroom.protocol import intervals
from postroom.protocol.limits import MAX_WAIT


def test_a_sign_of_life_may_be_lost_before_its_sender_is_given_up() -> None:
    assert 3 * intervals.DELIVERY_BEAT < intervals.ACK_WAIT
    assert 3 * intervals.PRESENCE_BEAT < intervals.PRESENCE_LIFETIME
    assert 3 * intervals.CARD_REFRESH <= intervals.CARD_LIFETIME
    assert 3 * intervals.STREAM_BEAT <= intervals.STREAM_SILENCE
    assert 2 * intervals.CALL_BEAT <= intervals.CALL_SILENCE
    assert intervals.STREAM_BEAT + intervals.SOCKET_PONG < intervals.STREAM_SILENCE


def test_who_asks_waits_longer_than_an_answer_may_take() -> None:
    assert POLL < ANSWER_TIMEOUT < MAX_WAIT < intervals.LOCAL_TIMEOUT

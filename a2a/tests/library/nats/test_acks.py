"""What the reply subject of a delivery says, and the words that answer one."""

from __future__ import annotations

from postroom_a2a.nats.acks import AckSubject, Place, give_back, give_up, parse_ack_subject

SHORT = "$JS.ACK.INBOX.bob.2.17.5.1700000000000000001.3"


def test_both_forms_of_the_subject_say_the_same():
    place = Place("INBOX", 17, 1700000000000000001, "INBOX.17.1700000000000000001")
    longer = SHORT.replace("$JS.ACK.", "$JS.ACK.domain.hash.") + ".token"

    assert parse_ack_subject(SHORT) == AckSubject(place, "bob", 2, 5, 3)
    assert parse_ack_subject(longer) == parse_ack_subject(SHORT)


def test_what_acknowledges_nothing_is_told_apart():
    for reply in (
        "",
        "$JS.ACK.",
        "$JS.API.INBOX.bob.2.17.5.1.3",
        "_INBOX.x",
        SHORT.removesuffix(".3"),
        SHORT + ".4",
        SHORT.replace(".17.", ".-17."),
        SHORT.replace(".17.", ".1_7."),
        SHORT.replace(".17.", ".٣."),
        SHORT.replace(".17.", ".."),
    ):
        assert parse_ack_subject(reply) is None, reply


def test_the_words_of_an_answer_are_one_line():
    assert (give_back(), give_back(0.5)) == (b"-NAK", b'-NAK {"delay": 500000000}')
    assert give_up("why\r\nnot\x1b[2J") == b"+TERM why not"
    assert give_up("") == b"+TERM"
    assert len(give_up("é" * 1000)) < 700

"""Addresses in rows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.tui.rowlog.links import links


@pytest.mark.parametrize(
    "text, shown",
    [
        ("at https://a.example/b, and", "https://a.example/b"),
        ("(https://a.example/b_(c))", "https://a.example/b_(c)"),
        ("<http://127.0.0.1:4280/x?y=1&z=2#f>", "http://127.0.0.1:4280/x?y=1&z=2#f"),
        ("HTTPS://A.example", "HTTPS://A.example"),
        ("**https://a.example**", "https://a.example"),
    ],
)
def test_an_address_ends_where_the_sentence_goes_on(text: str, shown: str):
    (link,) = links(text)
    assert (link.url, text[link.start : link.end], link.plain) == (shown, shown, True)


@pytest.mark.parametrize(
    "text",
    [
        "javascript:alert(1)",
        "file:///etc/passwd",
        "ftp://a.example",
        "https://",
        "https://:80/",
        "http://a.example:port/",
        "https://" + "x" * 3000 + ".example",
        "ssh://a.example data:text/html,x",
    ],
)
def test_other_things_are_no_links(text: str):
    assert list(links(text)) == []


def test_letters_of_other_alphabets_are_opened_in_punycode_and_percent_signs():
    (link,) = links("see https://bücher.example:8080/straße?q=ä")
    assert link.url == "https://xn--bcher-kva.example:8080/stra%C3%9Fe?q=%C3%A4"
    assert not link.plain


@given(st.text().map(lambda text: f"https://{text} http://a.example/{text}"))
def test_whatever_stands_there_what_is_opened_is_printable_ascii_and_http(text: str):
    for link in links(text):
        assert link.url.isascii()
        assert link.url.isprintable()
        assert " " not in link.url
        assert link.url.lower().startswith(("http://", "https://"))
        assert not link.plain or text[link.start : link.end] == link.url

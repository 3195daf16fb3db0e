"""A file of settings is changed in one place and nowhere else."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.errors import InvalidInput
from postroom.settings.sources import changed, flat

OURS = """\
# what I chose
[http]
port = 4300  # not 4280
listen = [
  "192.0.2.7", # the office
  "a = b # c",
]

[[other]]
port = 1

[nats]
# nothing yet
"""


@pytest.mark.requirement("settings-precedence")
@pytest.mark.parametrize(
    "key, value, old, new",
    [
        ("http.port", 1, "port = 4300  # not", "port = 1  # not"),
        ("http.listen", ["x"], OURS[OURS.index("listen") : OURS.index("\n\n")], 'listen = ["x"]'),
        ("http.port", None, "port = 4300  # not 4280\n", ""),
        ("nats.url", ["u"], "[nats]\n", '[nats]\nurl = ["u"]\n'),
        ("http.more", 'é"\\', '",\n]\n', '",\n]\nmore = "é\\"\\\\"\n'),
        ("tls.mode", "always", "# nothing yet\n", '# nothing yet\n\n[tls]\nmode = "always"\n'),
        ("tls.mode", None, "", ""),
    ],
)
def test_one_value_changes_and_every_other_line_stays(key: str, value: object, old: str, new: str):
    assert changed(OURS, key, value) == OURS.replace(old, new, 1)


@pytest.mark.requirement("settings-precedence")
@pytest.mark.parametrize(
    "text, key",
    [
        ("http = { port = 1 }\n", "http.port"),
        ("http = { port = 1 }\n", "http.listen"),
        ('["http"]\nport = 1\n', "http.port"),
        ('[http]\n"port" = 1\n', "http.port"),
        ("http = 1\n", "http.port"),
        ("http.port = 1\n", "http.listen"),
    ],
)
def test_what_is_written_in_an_unusual_way_is_refused_and_never_broken(text: str, key: str):
    with pytest.raises(InvalidInput, match=key):
        changed(text, key, "x")


def test_dotted_names_and_lines_that_end_in_the_manner_of_other_systems_are_understood():
    assert changed("http.port = 1\n", "http.port", 2) == "http.port = 2\n"
    assert tomllib.loads(changed("[http]\r\nport = 1\r\n", "http.port", 2)) == {"http": {"port": 2}}


KEYS = st.builds("{}.{}".format, st.sampled_from("abc"), st.sampled_from("xyz"))
WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=20)
VALUES = WORDS | st.integers(-(2**60), 2**60) | st.lists(WORDS, max_size=3) | st.floats(0, 1e9)


@given(st.lists(st.tuples(KEYS, VALUES | st.none()), max_size=12))
def test_after_any_changes_the_file_says_what_was_set_last(changes: list[tuple[str, object]]):
    text, expected = "# begin\n", {}
    for key, value in changes:
        try:
            text = changed(text, key, value)
        except InvalidInput:
            continue  # such as DEL, which TOML has no plain way to write
        expected.pop(key, None)
        if value is not None:
            expected[key] = value
    assert flat(tomllib.loads(text)) == expected
    assert text.startswith("# begin\n")

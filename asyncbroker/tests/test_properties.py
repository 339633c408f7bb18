"""Java properties files, by the rules of java.util.Properties.load."""

from __future__ import annotations

import pytest

from asyncbroker.properties import parse_properties


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("", {}),
        ("a=b", {"a": "b"}),
        ("a = b ", {"a": "b "}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("  a\t= b", {"a": "b"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("a==b", {"a": "=b"}),
        ("a=b=c", {"a": "b=c"}),
        ("# a=b\n! c=d\n\n  # e=f", {}),
        ("a=b#c", {"a": "b#c"}),
        ("a=b\nc=d\r\ne=f\rg=h", {"a": "b", "c": "d", "e": "f", "g": "h"}),
        ("a=1,\\\n   2,\\\n   3\nb=c", {"a": "1,2,3", "b": "c"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\\n# c", {"a": "b# c"}),
        ("a=b\\", {"a": "b"}),
        (r"a\=b=c", {"a=b": "c"}),
        (r"a\ b=c", {"a b": "c"}),
        (r"a=\u0041\tb\:c\q", {"a": "A\tb:cq"}),
        ("a=1\na=2", {"a": "2"}),
        ("listeners=PLAINTEXT://:9092", {"listeners": "PLAINTEXT://:9092"}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, entries: dict[str, str]) -> None:
    assert parse_properties(text) == entries

"""Addresses as users type them, and credentials that nobody gets to see."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest

from probe.errors import InputError
from probe.wire.address import Secret, parse_address

KEY = "sk-very-secret-4711"


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://localhost:8000", "http://localhost:8000"),
        (" http://localhost:8000/ ", "http://localhost:8000"),
        ("http://localhost:8000/v1", "http://localhost:8000"),
        ("https://gpu.example/team/a/v1/", "https://gpu.example/team/a"),
        ("http://[::1]:8000/v1", "http://[::1]:8000"),
        ("https://gpu.example?model=base", "https://gpu.example"),
        ("http://user:pass@gpu.example:1", "http://gpu.example:1"),
    ],
)
def test_addresses_are_brought_to_one_form(text: str, url: str) -> None:
    address = parse_address(text, environ={})
    assert str(address) == address.url == url
    assert not address.embedded


@pytest.mark.parametrize(
    ("text", "path", "options", "url"),
    [
        ("embedded:", "", {}, "embedded:"),
        ("embedded:?kv=q8_0", "", {"kv": "q8_0"}, "embedded:?kv=q8_0"),
        ("embedded:?kv=q4_0&fa=off", "", {"kv": "q4_0", "fa": "off"}, "embedded:?fa=off&kv=q4_0"),
        ("embedded:/models/a b.gguf?ctx=512", "/models/a b.gguf", {"ctx": "512"}, "embedded:/models/a b.gguf?ctx=512"),
    ],
)
def test_embedded_addresses(text: str, path: str, options: dict[str, str], url: str) -> None:
    address = parse_address(text, environ={"FLIPSCOPE_API_KEY": KEY})
    assert address.embedded
    assert address.path == path
    assert dict(address.options) == options
    assert str(address) == url
    assert address.secret is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "localhost:8000",
        "ftp://host",
        "http://",
        "http://host:notaport",
        "http://host:99999",
        "http://host/a b",
        "http://host\x1b[31m",
        "http://[::1",
        "http://host?kv=fp8",
        "http://host?model=a&model=b",
        "embedded:?kv",
        "embedded:?kv=a&kv=b",
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InputError) as raised:
        parse_address(text, environ={})
    assert raised.value.hint
    assert "\x1b" not in raised.value.detail


@pytest.mark.parametrize("text", [f"ftp://u:{KEY}@host", f"http://u:{KEY}@host?x=1", f"http://u:a/{KEY}@host:bad"])
def test_refusals_do_not_quote_credentials(text: str) -> None:
    with pytest.raises(InputError) as raised:
        parse_address(text, environ={})
    assert KEY not in raised.value.detail + raised.value.hint


def test_key_comes_from_the_environment() -> None:
    address = parse_address("https://host", environ={"FLIPSCOPE_API_KEY": f" {KEY}\n"})
    assert address.headers() == {"Authorization": f"Bearer {KEY}"}


def test_key_file_wins(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("other\n")
    address = parse_address("https://u:p@host", key_file=file, environ={"FLIPSCOPE_API_KEY": KEY})
    assert address.headers() == {"Authorization": "Bearer other"}


def test_userinfo_becomes_a_header() -> None:
    address = parse_address("https://aladdin:open%20sesame@host", environ={})
    assert address.headers() == {"Authorization": "Basic YWxhZGRpbjpvcGVuIHNlc2FtZQ=="}
    assert address.redact("open sesame, YWxhZGRpbjpvcGVuIHNlc2FtZQ==") == "***, ***"


@pytest.mark.parametrize("content", [b"", b" \n", b"a" * 9000, b"\xff\xfe\x00"])
def test_unusable_key_files_are_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "key"
    file.write_bytes(content)
    with pytest.raises(InputError):
        parse_address("https://host", key_file=file, environ={})


def test_missing_key_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere"):
        parse_address("https://host", key_file=tmp_path / "nowhere", environ={})


@pytest.mark.parametrize("key", ["two\nlines-4711", "blank in-4711", "ümlaut-4711", "esc\x1b-4711"])
def test_keys_that_fit_no_header_are_refused_unseen(key: str) -> None:
    with pytest.raises(InputError) as raised:
        parse_address("https://host", environ={"FLIPSCOPE_API_KEY": key})
    assert "4711" not in raised.value.detail


def test_secrets_show_themselves_to_nobody() -> None:
    secret = Secret(KEY)
    address = parse_address("https://host", environ={"FLIPSCOPE_API_KEY": KEY})
    for shown in (repr(secret), str(secret), f"{secret}", repr(address), str(address), repr([secret])):
        assert KEY not in shown
    for write in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError):
            write(secret)


@pytest.mark.parametrize(
    ("text", "loopback"),
    [
        ("http://localhost:1", True),
        ("http://127.0.0.9:1", True),
        ("http://[::1]:1", True),
        ("http://0.0.0.0:1", True),
        ("embedded:", True),
        ("http://10.0.0.1:1", False),
        ("https://localhost.example", False),
    ],
)
def test_loopback(text: str, loopback: bool) -> None:
    assert parse_address(text, environ={}).loopback is loopback


def test_a_key_in_the_clear_is_seen() -> None:
    environ = {"FLIPSCOPE_API_KEY": KEY}
    assert parse_address("http://gpu.example", environ=environ).exposes_key
    assert not parse_address("https://gpu.example", environ=environ).exposes_key
    assert not parse_address("http://localhost", environ=environ).exposes_key
    assert not parse_address("http://gpu.example", environ={}).exposes_key

"""Where a runtime answers: an HTTP address or the embedded engine. Credentials never leave this object as text."""

from __future__ import annotations

import base64
import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from probe.errors import InputError

KEY_VARIABLE = "FLIPSCOPE_API_KEY"
KEY_LIMIT = 8192
"""Bytes of a key file that are read; the longest keys in use are JWTs of 1-4 kB."""


class Secret:
    """A credential that shows itself to nobody who does not ask for it by name."""

    __slots__ = ("_parts", "_value")

    def __init__(self, value: str, *parts: str) -> None:
        self._value = value
        self._parts = [part for part in (value, *parts) if part]

    def reveal(self) -> str:
        """The credential itself, for the Authorization header."""
        return self._value

    def redact(self, text: str) -> str:
        """`text` with every occurrence of the credential struck out."""
        for part in self._parts:
            text = text.replace(part, "***")
        return text

    def __repr__(self) -> str:
        return "Secret(***)"

    __str__ = __repr__

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a secret is not written anywhere")


@dataclass(frozen=True, slots=True)
class Address:
    """One runtime's address.

    Attributes:
        url: Base URL without credentials, trailing slash or `/v1`; for the embedded engine the canonical
            `embedded:[PATH][?options]`. This is what may be shown and stored.
        embedded: Whether the runtime is the embedded engine.
        path: Model file of the embedded engine, `""` for its own model.
        options: What follows `?`: the engine's settings, or `model` for a server that serves several.
        scheme: `Bearer` or `Basic`.
        secret: The credential for the Authorization header, if any.
    """

    url: str
    embedded: bool = False
    path: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    scheme: str = "Bearer"
    secret: Secret | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        return self.url

    @property
    def loopback(self) -> bool:
        """Whether the server runs on this machine, so that no proxy may stand between."""
        if self.embedded:
            return True
        host = urlsplit(self.url).hostname or ""
        if host == "localhost" or host.endswith(".localhost"):
            return True
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        return address.is_loopback or address.is_unspecified

    @property
    def exposes_key(self) -> bool:
        """Whether a credential would cross a network in the clear."""
        return self.secret is not None and self.url.startswith("http://") and not self.loopback

    def headers(self) -> dict[str, str]:
        """The Authorization header, or nothing."""
        return {} if self.secret is None else {"Authorization": f"{self.scheme} {self.secret.reveal()}"}

    def redact(self, text: str) -> str:
        """`text` without this address's credential, for sentences that came from elsewhere."""
        return text if self.secret is None else self.secret.redact(text)


def parse_address(text: str, *, key_file: Path | None = None, environ: Mapping[str, str] | None = None) -> Address:
    """Read an address as a user types it.

    Args:
        text: `http(s)://host[:port][/prefix][?model=NAME]` (a trailing `/v1` is tolerated, credentials in front of
            the host become a Basic header) or `embedded:[PATH][?option=value&…]`.
        key_file: File that holds the API key; it wins over the environment.
        environ: Environment to look up `FLIPSCOPE_API_KEY` in, by default the process's.

    Raises:
        InputError: The text is no such address, or the key cannot be used. Never quotes a credential.
    """
    text = text.strip()
    if text.startswith("embedded:"):
        return _embedded(text)
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise InputError(f"{_bare(text)!r} is no address", hint=_HOW) from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(f"{_bare(text)!r} is no address", hint=_HOW)
    if any(ord(character) <= 32 or ord(character) == 127 for character in text):
        raise InputError(f"{_bare(text)!r} holds blanks or control characters", hint=_HOW)
    options = _options(parts.query, text)
    if unknown := set(options) - {"model"}:
        raise InputError(
            f"{_bare(text)!r} has an unknown option {sorted(unknown)[0]!r}", hint="Only ?model=NAME is read."
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    prefix = parts.path.rstrip("/").removesuffix("/v1").rstrip("/")
    url = f"{parts.scheme}://{host}{f':{port}' if port is not None else ''}{prefix}"
    scheme, secret = _credential(parts, key_file, os.environ if environ is None else environ)
    return Address(url, options=options, scheme=scheme, secret=secret)


_HOW = "Write http://HOST:PORT, https://HOST/PREFIX or embedded:"


def _embedded(text: str) -> Address:
    path, _, query = text.removeprefix("embedded:").partition("?")
    options = _options(query, text)
    asked = "&".join(f"{quote(key)}={quote(value)}" for key, value in sorted(options.items()))
    return Address(f"embedded:{path}{'?' if asked else ''}{asked}", embedded=True, path=unquote(path), options=options)


def _options(query: str, text: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), max_num_fields=32)
    except ValueError as problem:
        raise InputError(f"{_bare(text)!r}: options cannot be read ({problem})", hint="Write ?name=value&…") from None
    options = dict(pairs)
    if len(options) != len(pairs):
        raise InputError(f"{_bare(text)!r} sets an option twice", hint="Write every option once.")
    return options


def _credential(parts: SplitResult, key_file: Path | None, environ: Mapping[str, str]) -> tuple[str, Secret | None]:
    if key_file is not None:
        return "Bearer", Secret(_usable(_read_key(key_file), f"The API key in {key_file}"))
    if key := environ.get(KEY_VARIABLE, "").strip():
        return "Bearer", Secret(_usable(key, f"The API key in {KEY_VARIABLE}"))
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        return "Basic", Secret(base64.b64encode(pair.encode()).decode(), unquote(parts.password or ""))
    return "Bearer", None


def _read_key(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(KEY_LIMIT + 1)
        key = data.decode().strip()
    except (OSError, UnicodeDecodeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "not text"
        raise InputError(f"The API key file {path} cannot be read: {reason}", hint=f"Or set {KEY_VARIABLE}.") from None
    if not key or len(data) > KEY_LIMIT:
        raise InputError(f"The API key file {path} is {'empty' if not key else 'too long'}", hint="One line, one key.")
    return key


def _usable(key: str, whose: str) -> str:
    """The key, if it fits into a header: a line break in it would make the HTTP library quote it in its error."""
    if not key.isascii() or not key.isprintable() or " " in key:
        raise InputError(f"{whose} holds characters that no HTTP header takes", hint="One line, one key.")
    return key


def _bare(text: str) -> str:
    """`text` without userinfo and without control characters, fit for a message."""
    head, slashes, rest = text.partition("//")
    clean = f"{head}{slashes}{rest.rpartition('@')[2]}"
    return "".join(character if character.isprintable() else "?" for character in clean)[:200]

"""Lanes and tokens for tests that draw: seeded, with every kind of trouble a token can make."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from probe.records import Piece, Range
from tui.glyphs import Glyphs
from tui.lanes import Lanes

WORDS: tuple[bytes, ...] = (
    b" the", b" port", b" of", b"er", b"ing", b",", b".", b"\n", b" router", b" interface", b"=", b' "', b" 42", b"7",
    b" SELECT", b" FROM", b"  ", b"{", b"}", b"_", b"(", b" x", b"s", b" un", b" config", b"\n    ", "漢字".encode(),
)  # fmt: skip

HOSTILE: tuple[bytes, ...] = (
    b"[/INST]", b"[red]", b"[INST]", b"[link=https://e.x]x", b"[@click=app.bell]x[/]", b"\x1b[31m",
    b"\x1b]52;c;aGk=\x07", b"\x1b]0;title\x07", b"\x00", b"\r\n", b"\t", b"\x7f", "\x85\x9b31m".encode(),
    "\u202egnp".encode(), "\u2066x\u2069".encode(), "\u200b".encode(), "\ufeff".encode(), "\u2028".encode(),
    ("Z" + "\u0301" * 40).encode(), "\u0301".encode(), "\u20e3".encode(), "\u1161".encode(), "漢字かな".encode(),
    "👩\u200d👩\u200d👧".encode(), "❤\ufe0f".encode(), "🏽".encode(), "🇫".encode(), "🇫🇮".encode(), "🇫🇮🇸".encode(),
    b"\xe6\xbc", b"\xed\xa0\x80", b"\xf0\x9f\x99", b"", b"x" * 2000, "漢".encode() * 700, "\U000e0041".encode(),
    "\ue000".encode(), "\u0378".encode(), "שלום".encode(), "நி".encode(), "\u3164".encode(), "\xa0".encode(),
    b"</script>", b"   ", b" ",
)  # fmt: skip

LABELS = ("f32", "bf16", "kv fp8", "int8", "int4")


def glyphs_of(tokens: Sequence[bytes], *, ascii_only: bool = False) -> Glyphs:
    """Glyphs of a vocabulary given as bytes; ids past its end are unknown."""
    table = [Piece(data, special=data.startswith(b"<|")) for data in tokens]
    unknown = Piece(b"", exact=False)
    return Glyphs(lambda token: table[token] if 0 <= token < len(table) else unknown, ascii_only=ascii_only)


def make_lanes(
    n: int,
    tokens: int = len(WORDS),
    *,
    seed: int = 3,
    labels: tuple[str, ...] = LABELS,
    flips: Sequence[float] = (0.0, 0.0, 0.03, 0.05, 0.2),
    ranges: tuple[Range, ...] = (),
    missing: tuple[str, ...] = (),
    prompt_length: int | None = None,
) -> Lanes:
    """Random lanes that flip as often as `flips` says."""
    rng = np.random.default_rng(seed)
    count = len(labels)
    ids = rng.integers(0, tokens, n, dtype=np.int32)
    flip = rng.random((count, n)) < np.asarray(flips[:count])[:, None]
    flip[:, :1] = False
    top1 = np.where(flip, (ids + 1 + rng.integers(0, tokens - 1, (count, n))) % tokens, ids).astype(np.int32)
    top1[:, :1] = -1
    kl = rng.lognormal(-5, 2, (count, n)).astype(np.float32)
    kl[:1] = 0
    kl[:, :1] = np.nan
    return Lanes(
        "sample",
        labels,
        ids,
        top1,
        kl,
        flip,
        ~flip & (rng.random((count, n)) < 0.02),
        np.where(flip, rng.integers(1, 5, (count, n)), 0).astype(np.uint8),
        rng.random(n) < 0.2,
        n // 3 if prompt_length is None else prompt_length,
        ranges,
        missing,
    )

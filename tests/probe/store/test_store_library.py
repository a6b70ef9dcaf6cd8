from __future__ import annotations

from pathlib import Path

import pytest

from probe import paths
from probe.errors import InputError
from probe.store.library import capture_path, listing, resolve


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    bundled = tmp_path / "bundled"
    bundled.mkdir()
    own = tmp_path / "own"
    own.mkdir()
    monkeypatch.setenv("FLIPSCOPE_CAPTURES", str(own))
    monkeypatch.setattr(paths, "bundled_captures", lambda: bundled)
    for path in (own / "f32.msgpack", own / "kv=fp8.msgpack", bundled / "f32.msgpack", bundled / "bf16.msgpack"):
        path.write_bytes(b"")
    (own / ".hidden.msgpack").write_bytes(b"")
    (own / "notes.txt").write_bytes(b"")
    return tmp_path


def test_a_label_means_your_own_file_before_a_bundled_one(folders: Path) -> None:
    assert resolve("f32") == folders / "own" / "f32.msgpack"
    assert resolve("bf16") == folders / "bundled" / "bf16.msgpack"
    assert resolve(str(folders / "own" / "kv=fp8.msgpack")) == folders / "own" / "kv=fp8.msgpack"


def test_the_listing_hides_what_cannot_be_named() -> None:
    assert [(each.label, each.bundled) for each in listing()] == [("f32", False), ("kv=fp8", False), ("bf16", True)]


def test_an_unknown_name_is_met_with_near_ones() -> None:
    with pytest.raises(InputError) as caught:
        resolve("bf61")
    assert "bf16" in caught.value.hint


@pytest.mark.parametrize("label", ["", ".hidden", "../up", "a/b", "a b", "a" * 65, "nul\0", "ünï", "a\n"])
def test_labels_that_cannot_name_a_file_are_refused(label: str) -> None:
    with pytest.raises(InputError):
        capture_path(label)
    with pytest.raises(InputError):
        resolve(label or "nothing")


def test_labels_name_files_in_the_captures_folder(folders: Path) -> None:
    assert capture_path("w=int4_g64+kv.fp8-1") == folders / "own" / "w=int4_g64+kv.fp8-1.msgpack"

from __future__ import annotations

from pathlib import Path

import pytest

from probe import paths
from probe.errors import InputError


def homeless() -> Path:
    raise RuntimeError("Could not determine home directory.")


def test_a_user_without_a_home_can_look_but_keep_no_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable in ("FLIPSCOPE_CACHE", "FLIPSCOPE_CONFIG", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    assert not paths.config().exists()
    with pytest.raises(InputError) as caught:
        paths.cache()
    assert "FLIPSCOPE_CACHE" in caught.value.hint
    monkeypatch.setenv("FLIPSCOPE_CACHE", str(tmp_path))
    assert paths.cache() == tmp_path


def test_an_empty_variable_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLIPSCOPE_CAPTURES", "")
    assert paths.captures() == Path("captures")

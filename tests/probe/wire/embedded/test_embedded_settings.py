from __future__ import annotations

import pytest

from probe.errors import InputError
from probe.wire.address import parse_address
from probe.wire.embedded import open_embedded
from probe.wire.embedded.settings import KV_TYPES, WEIGHTS, Settings, parse_settings


def test_no_options_are_the_defaults() -> None:
    assert parse_settings({"threads": "1"}) == Settings()


def test_every_option_is_read() -> None:
    options = {
        "kv": "Q8_0",
        "fa": "on",
        "weights": "q2_k",
        "ctx": "512",
        "threads": "2",
        "max_logprobs": "-1",
    }
    assert parse_settings(options) == Settings("q8_0", True, "Q2_K", 512, 2, -1)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"kw": "f16"}, "kv"),
        ({"kv": "fp8"}, ", ".join(KV_TYPES)),
        ({"weights": "int4"}, ", ".join(WEIGHTS)),
        ({"fa": "yes"}, "on, off"),
        ({"fa": ""}, "on, off"),
        ({"ctx": "0"}, "from 16 to"),
        ({"ctx": "1e3"}, "from 16 to"),
        ({"ctx": "٣٣"}, "from 16 to"),
        ({"threads": "-1"}, "from 1 to 256"),
        ({"threads": "9" * 5000}, "from 1 to 256"),
    ],
)
def test_a_bad_option_names_the_valid_ones(options: dict[str, str], named: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_settings(options)
    assert named in caught.value.hint


@pytest.mark.parametrize("kv", [kv for kv in KV_TYPES if kv.startswith("q")])
def test_a_quantised_cache_without_flash_attention_is_refused(kv: str) -> None:
    assert parse_settings({"kv": kv}).flash
    with pytest.raises(InputError, match=f"kv={kv} with fa=off"):
        parse_settings({"kv": kv, "fa": "off"})


def test_a_setting_that_does_nothing_is_said() -> None:
    assert parse_settings({"kv": "f32", "fa": "off"}).notes() == []
    assert "equal kv=f16" in parse_settings({"kv": "f32"}).notes()[0]


def test_a_missing_or_foreign_file_is_refused_before_anything_loads(tmp_path: object) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        open_embedded(parse_address(f"embedded:{tmp_path}/none.gguf"))
    with pytest.raises(InputError, match="is no GGUF file"):
        open_embedded(parse_address(f"embedded:{__file__}"))


def test_without_cyllama_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from probe.errors import EngineMissingError

    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(EngineMissingError) as caught:
        open_embedded(parse_address("embedded:"))
    assert "pip install 'flipscope[embedded]'" in caught.value.hint

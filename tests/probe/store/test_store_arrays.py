from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from probe.store import lattice
from probe.store.arrays import PackedArray, pack
from probe.store.plain import dumps

CODECS = ("planes", "delta", "lzma", "lattice")
BITS = st.integers(0, 2**32 - 1)
ODD = np.array([np.nan, -9999.0, -0.0, 0.0, np.inf, -np.inf, 1e-45, -1e-45, 3.4e38, -3.4e38], np.float32)


def again(packed: PackedArray) -> NDArray[Any]:
    return PackedArray.parse(packed.ext().data).unpack()


@given(hnp.arrays(np.uint32, hnp.array_shapes(min_dims=2, max_dims=2, min_side=0, max_side=8), elements=BITS))
def test_every_float32_bit_pattern_comes_back(bits: NDArray[np.uint32]) -> None:
    array = bits.view(np.float32)
    for codec in CODECS:
        assert np.array_equal(again(pack(array, codec)).view(np.uint32), bits)


@given(st.lists(st.sampled_from([float(each) for each in ODD] + [-1.5, -2.25, -0.1]), min_size=2, max_size=60))
def test_odd_values_inside_a_lattice_come_back(values: list[float]) -> None:
    array = np.array(values[: len(values) // 2 * 2], np.float32).reshape(-1, 2)
    packed = pack(array, "lattice")
    assert np.array_equal(again(packed).view(np.uint32), array.view(np.uint32))


def test_nan_payloads_survive() -> None:
    bits = np.array([[0x7FC00001, 0xFFC00000, 0x7F800001], [0x7FFFFFFF, 0x80000000, 0xC61C3C00]], np.uint32)
    for codec in CODECS:
        assert np.array_equal(again(pack(bits.view(np.float32), codec)).view(np.uint32), bits)


@given(hnp.arrays(np.int32, hnp.array_shapes(min_dims=1, max_dims=2, min_side=0, max_side=9)))
def test_every_integer_comes_back(array: NDArray[np.int32]) -> None:
    for codec in CODECS:
        assert np.array_equal(again(pack(array, codec)), array)


@pytest.mark.parametrize("largest", [200, 65534, 65535, 262143, 2**24 - 1])
def test_ids_of_any_vocabulary_come_back_from_lzma(largest: int) -> None:
    random = np.random.default_rng(largest)
    ids = np.minimum(random.zipf(1.2, (400, 20)), largest).astype(np.int32)
    ids[0] = -1
    ids[1, 0] = largest
    packed = pack(ids, "lzma")
    assert packed.codec == "lzma"
    assert np.array_equal(again(packed), ids)


def test_softmax_rows_are_on_a_grid_and_take_less() -> None:
    random = np.random.default_rng(1)
    logits = random.normal(18, 3, (300, 400)).astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)  # as bfloat16
    scores = logits.view(np.float32) - logits.view(np.float32).max(axis=1, keepdims=True)
    scores -= np.log(np.exp(scores).sum(axis=1, keepdims=True))
    rows = -np.sort(-scores, axis=1)[:, :20]
    exponents, _ = lattice.fit(rows)
    assert (exponents != lattice.OFF).all()
    assert pack(rows, "lattice").size < 0.5 * pack(rows, "delta").size


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        (["<f8", [1], "raw", b"0" * 8], "unknown dtype"),
        (["<i4", [1 << 40], "planes", b""], "out of bounds"),
        (["<i4", [1 << 20, 1 << 20], "planes", b""], "beyond the limit"),
        (["<i4", [-1], "raw", b""], "out of bounds"),
        (["<i4", [True], "raw", b"1234"], "out of bounds"),
        (["<i4", [2, 2, 2], "raw", b""], "one or two dimensions"),
        (["<i4", [1], "pickle", b""], "unknown codec"),
        (["<i4", [1], "raw", "text"], "not bytes"),
        ("no list", "not \\[dtype"),
    ],
)
def test_a_description_out_of_bounds_is_refused_before_decompression(fields: object, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        PackedArray.parse(dumps(fields))


def test_a_bomb_is_refused_by_what_its_frame_states() -> None:
    bomb = pack(np.zeros(1 << 22, np.int32), "planes")
    assert bomb.size < 1000
    with pytest.raises(ValueError, match="expected 40"):
        PackedArray("<i4", (10,), "planes", bomb.parts).unpack()
    squeezed = pack(np.zeros(1 << 20, np.int32), "lzma")
    with pytest.raises(ValueError, match="or more"):
        PackedArray("<i4", (10,), "lzma", squeezed.parts).unpack()


def test_wrong_parts_are_refused() -> None:
    for codec in ("raw", *CODECS):
        for parts in ((), (b"",), (b"x", b"y"), (b"1", b"2", b"3", b"4")):
            with pytest.raises(ValueError):
                PackedArray("<f4", (3, 2), codec, parts).unpack()

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probe.store.plain import dumps, loads

SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary()
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)


@given(VALUES)
def test_plain_objects_come_back(value: object) -> None:
    assert loads(dumps([value])) == [value]


@given(st.binary(max_size=200))
def test_any_bytes_end_in_an_object_or_a_value_error(data: bytes) -> None:
    try:
        loads(data)
    except ValueError as error:
        assert str(error)


def test_a_declared_count_is_refused_before_it_is_allocated() -> None:
    for head in (b"\xdd\xff\xff\xff\xff", b"\xdf\x7f\xff\xff\xff"):
        with pytest.raises(ValueError, match="more than"):
            loads(head)
    with pytest.raises(ValueError, match="too early"):
        loads(b"\xc6\xff\xff\xff\xff")


def test_nesting_is_bounded() -> None:
    with pytest.raises(ValueError, match="deeper"):
        loads(b"\x91" * 100_000 + b"\xc0")


def test_bytes_behind_the_object_are_refused() -> None:
    with pytest.raises(ValueError, match="follow"):
        loads(b"\xc0\xc0")

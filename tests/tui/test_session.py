"""The state behind the screen: prompts in order, travel across them, places remembered."""

from __future__ import annotations

import memory_captures
import numpy as np
import pytest

from probe.comparison import Comparison
from probe.errors import CaptureFormatError, InputError
from tui.opened import open_prompt
from tui.session import Session


def test_prompts_of_one_category_stand_together() -> None:
    made = memory_captures.captures(prompts={"a": "text", "b": "code", "c": "text", "d": ""}, positions=20)
    session = Session(memory_captures.comparison(made))
    assert session.categories() == [("text", ["a", "c"]), ("code", ["b"]), ("", ["d"])]
    assert session.prompt_ids == ["a", "c", "b", "d"]


def test_an_unknown_prompt_is_refused_with_the_known_ones(comparison: Comparison) -> None:
    with pytest.raises(InputError) as caught:
        Session(comparison, prompt="no\x1bsuch")
    assert "facts-capital" in caught.value.hint
    assert "\x1b" not in caught.value.detail


def test_a_prompt_opens_at_its_first_flip_of_the_output(session: Session) -> None:
    assert session.opened is not None
    lanes = session.opened.lanes
    flips = np.flatnonzero(lanes.flip.any(axis=0))
    assert session.position == flips[flips >= lanes.prompt_length][0]


def test_a_prompt_without_flips_opens_at_its_output() -> None:
    made = memory_captures.captures(quiet=frozenset(memory_captures.PROMPTS))
    session = memory_captures.opened_session(memory_captures.comparison(made))
    assert session.position == 60


def test_coming_back_stands_where_it_was_left(session: Session) -> None:
    session.move(123, 2)
    second = session.prompt_ids[1]
    session.enter(second, session.read(second))
    session.move(7, 1)
    first = session.prompt_ids[0]
    session.enter(first, session.read(first))
    assert (session.position, session.lane) == (123, 2)
    session.enter(second, session.read(second), 1_000_000)
    assert session.position == 199


def test_travel_goes_round_the_prompts_and_says_so(session: Session) -> None:
    ids = session.prompt_ids
    assert list(session.others(1)) == [(ids[1], False), (ids[2], False), (ids[3], False), (ids[0], True)]
    assert list(session.others(-1)) == [(ids[3], True), (ids[2], True), (ids[1], True), (ids[0], True)]
    assert session.neighbour(-1) == ids[3]
    assert session.neighbour(1, of=ids[3]) == ids[0]


def test_edge_flips_come_from_the_scores_and_pass_over_hidden_lanes(session: Session) -> None:
    second = session.prompt_ids[1]
    assert session.edge_flip(second, 1) is None, "not scored yet"
    session.score(second)
    flips = session.read(second).lanes.flip
    assert session.edge_flip(second, 1) == np.flatnonzero(flips.any(axis=0))[0]
    assert session.edge_flip(second, -1, 1) == np.flatnonzero(flips[1])[-1]
    assert session.toggle_lane(2)
    assert session.edge_flip(second, 1) == np.flatnonzero(flips[1])[0]
    assert session.edge_flip(second, 1, 0) is None, "the reference does not flip against itself"


def test_the_reference_cannot_be_hidden(session: Session) -> None:
    assert not session.toggle_lane(0)
    assert not session.toggle_lane(3)
    assert session.shown == [True, True, True]


def test_tallies_count_flips_and_remember_failures() -> None:
    made = memory_captures.captures()
    made[1].broken = frozenset({"cisco-acl"})
    session = memory_captures.opened_session(memory_captures.comparison(made))
    assert session.tally("sql-orders").flips is None
    while waiting := session.unscored():
        session.score(waiting[0])
    lanes = session.read("sql-orders").lanes
    tally = session.tally("sql-orders")
    output = np.arange(len(lanes)) >= lanes.prompt_length
    assert tally.flips == ((lanes.flip[1] & output).sum(), (lanes.flip[2] & output).sum())
    assert tally.total == sum(tally.flips)
    assert tally.total < tally.everywhere == lanes.flip.sum()
    assert tally.worst == lanes.triage[:, output].max()
    session.toggle_lane(2)
    assert session.tally("sql-orders").total == tally.flips[0]
    assert session.tally("sql-orders").worst == lanes.triage[1][output].max()
    assert "checksum" in session.tally("cisco-acl").failure
    with pytest.raises(CaptureFormatError):
        session.read("cisco-acl")


def test_the_current_prompt_is_scored_first(session: Session) -> None:
    third = session.prompt_ids[2]
    session.enter(third, session.read(third))
    assert session.unscored()[:2] == [third, session.prompt_ids[3]]


def test_a_lane_without_rows_is_not_a_number() -> None:
    made = memory_captures.captures()
    record = made[2].records["facts-capital"]
    made[2].records = {
        **made[2].records,
        "facts-capital": type(record)(
            prompt_id="facts-capital", category="facts", index=0, prompt_length=60, failure="the server died"
        ),
    }
    opened = open_prompt(memory_captures.comparison(made), "facts-capital")
    assert np.isnan(opened.lanes.kl[2]).all()
    assert (opened.lanes.top1[2] == -1).all()
    assert opened.lanes.missing[2] == "the server died"
    assert opened.streams[2] is None


def test_lanes_hold_what_the_streams_say(session: Session) -> None:
    assert session.opened is not None
    lanes, streams = session.opened.lanes, session.opened.streams
    for lane, stream in enumerate(streams):
        assert stream is not None
        assert np.array_equal(lanes.top1[lane], stream.top_ids[:, 0])
        expected = np.exp(stream.logprob.astype(float)) - np.exp(streams[0].logprob.astype(float))  # type: ignore[union-attr]
        assert np.allclose(session.opened.delta_p[lane][1:], expected[1:], atol=1e-6)
    assert lanes.kl[0].max() == 0
    assert np.isnan(lanes.kl[1][0])

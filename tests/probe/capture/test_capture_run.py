from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from fake_vllm import MAX_MODEL_LEN, FakeServer
from watching import Watcher

from probe.capture.options import CaptureOptions, Target, parse_target
from probe.capture.run import run_capture
from probe.capture.runtime import Outcome
from probe.errors import CaptureConflictError, FlipscopeError, InputError, ServerUnreachableError
from probe.prompts import Prompt, PromptSet
from probe.records import Protocol
from probe.store.reader import Capture

PROMPTS = PromptSet(
    "test",
    (
        Prompt(id="greedy", category="a", text="The capital of France"),
        Prompt(id="given", category="b", text="One two", continuation=" three"),
        Prompt(id="ids", category="a", ids=[5, 6, 7], max_tokens=3),
    ),
)
PROTOCOL = Protocol(top_k=5, max_tokens=8)


def options(folder: Path, **changes: Any) -> CaptureOptions:
    protocol = msgspec.structs.replace(PROTOCOL, **changes.pop("protocol", {}))
    return CaptureOptions(protocol=protocol, folder=folder, **changes)


def targets(*servers: FakeServer) -> list[Target]:
    return [parse_target(f"{'abcde'[n]}={server.url}") for n, server in enumerate(servers)]


async def run(folder: Path, *servers: FakeServer, watcher: Watcher | None = None, **changes: Any) -> list[Outcome]:
    prompts = changes.pop("prompts", PROMPTS)
    reference = changes.pop("reference", None)
    return await run_capture(
        targets(*servers), options(folder, **changes), watcher or Watcher(), prompts=prompts, reference=reference
    )


async def test_the_first_writes_the_text_and_the_other_scores_exactly_it(
    tmp_path: Path, server: FakeServer, other_server: FakeServer
) -> None:
    outcomes = await run(tmp_path, server, other_server)
    assert [(o.label, o.recorded, o.failed) for o in outcomes] == [("a", 3, {}), ("b", 3, {})]
    with Capture.open(tmp_path / "a.msgpack") as ours, Capture.open(tmp_path / "b.msgpack") as theirs:
        assert ours.complete and theirs.complete
        assert (ours.header.reference, theirs.header.reference) == ("", "a")
        for prompt_id in ("greedy", "given", "ids"):
            one, two = ours.record(prompt_id), theirs.record(prompt_id)
            assert one.forced is not None and two.forced is not None and one.generated is not None
            np.testing.assert_array_equal(one.forced.ids, two.forced.ids)
            assert not one.forced.equals(two.forced)
            assert one.output == ((one.prompt_length, len(one.forced)),)
        greedy = ours.record("greedy")
        assert greedy.forced is not None and greedy.generated is not None
        np.testing.assert_array_equal(greedy.forced.ids[greedy.prompt_length :], greedy.generated.ids)
        given = ours.record("given")
        assert given.forced is not None and bytes(given.forced.ids.tolist()) == b"One two three"
        ids = ours.record("ids")
        assert ids.generated is not None and len(ids.generated) == 3


async def test_rows_are_the_servers_own_numbers(tmp_path: Path, server: FakeServer) -> None:
    await run(tmp_path, server)
    with Capture.open(tmp_path / "a.msgpack") as capture:
        forced = capture.record("greedy").forced
    assert forced is not None
    text = forced.ids.tolist()
    for position in range(1, len(text)):
        truth = server.model.logprobs(text[:position])
        order = np.argsort(-truth, kind="stable")[:5]
        assert forced.top_ids[position].tolist() == order.tolist()
        assert forced.top_logprobs[position].tobytes() == truth[order].tobytes()
        assert forced.logprob[position] == truth[text[position]]


async def test_one_request_at_a_time_unless_asked(tmp_path: Path, server: FakeServer) -> None:
    server.delay = 0.01
    await run(tmp_path, server)
    assert server.busiest == 1


async def test_concurrency_is_bounded_and_generations_stay_alone(tmp_path: Path, server: FakeServer) -> None:
    server.delay = 0.02
    many = PromptSet("many", tuple(Prompt(id=str(n), text="x" * (n + 2), continuation="yz") for n in range(12)))
    await run(tmp_path, server, prompts=many, protocol={"concurrency": 3})
    assert 1 < server.busiest <= 3
    assert server.crowded == 0


async def test_generations_side_by_side_when_asked(tmp_path: Path, server: FakeServer) -> None:
    server.delay = 0.02
    many = PromptSet("many", tuple(Prompt(id=str(n), text="x" * (n + 2), continuation="yz") for n in range(12)))
    await run(tmp_path, server, prompts=many, protocol={"generate_concurrency": 3})
    assert server.crowded > 0


async def test_running_again_sends_no_completion(tmp_path: Path, server: FakeServer, other_server: FakeServer) -> None:
    await run(tmp_path, server, other_server)
    before = [Path(tmp_path / f"{label}.msgpack").read_bytes() for label in "ab"]
    sent = len(server.completions())
    outcomes = await run(tmp_path, server, other_server)
    assert [(o.recorded, o.kept) for o in outcomes] == [(0, 3), (0, 3)]
    assert all(len(body["prompt"]) <= 3 for body in server.completions()[sent:])  # the preflight's probes alone
    assert [Path(tmp_path / f"{label}.msgpack").read_bytes() for label in "ab"] == before


async def test_a_refused_prompt_is_recorded_with_its_reason_and_tried_again(tmp_path: Path, server: FakeServer) -> None:
    server.refuse = {len("The capital of France")}
    watcher = Watcher()
    (outcome,) = await run(tmp_path, server, watcher=watcher)
    assert list(outcome.failed) == ["greedy"]
    assert "refuses prompts of 21 tokens" in outcome.failed["greedy"]
    with Capture.open(tmp_path / "a.msgpack") as capture:
        assert set(capture.prompt_ids) == {"greedy", "given", "ids"}
        assert "refuses" in capture.record("greedy").failure
    server.refuse = set()
    (outcome,) = await run(tmp_path, server)
    assert (outcome.recorded, outcome.kept, outcome.failed) == (1, 2, {})
    with Capture.open(tmp_path / "a.msgpack") as capture:
        assert capture.record("greedy").failure == ""


async def test_a_candidate_learns_that_the_reference_has_no_text(
    tmp_path: Path, server: FakeServer, other_server: FakeServer
) -> None:
    server.refuse = {len("The capital of France")}
    outcomes = await run(tmp_path, server, other_server)
    assert list(outcomes[1].failed) == ["greedy"]
    assert "reference" in outcomes[1].failed["greedy"]
    with Capture.open(tmp_path / "b.msgpack") as capture:
        record = capture.record("greedy")
    assert record.forced is None and record.generated is not None


async def test_a_dead_server_keeps_what_it_had_and_the_others_go_on(
    tmp_path: Path, server: FakeServer, other_server: FakeServer
) -> None:
    prompts = PromptSet("p", tuple(Prompt(id=str(n), text="ab" * (n + 1), continuation="cd") for n in range(5)))
    watcher = Watcher()

    def dies_after_two(label: str, prompt_id: str, tokens: int) -> None:
        watcher.records.append((label, prompt_id))
        if label == "b" and prompt_id == "1":
            other_server.dead = True

    watcher.recorded = dies_after_two  # type: ignore[method-assign]
    outcomes = await run(tmp_path, server, other_server, watcher=watcher, prompts=prompts)
    assert outcomes[0].recorded == 5 and outcomes[0].error is None
    assert outcomes[1].error is not None and outcomes[1].recorded >= 2
    assert "b" in watcher.stops
    kept = outcomes[1].recorded
    other_server.dead = False
    outcomes = await run(tmp_path, server, other_server, prompts=prompts)
    assert (outcomes[1].kept, outcomes[1].recorded) == (kept, 5 - kept)


async def test_a_dead_reference_stops_the_candidates_that_wait_for_its_text(
    tmp_path: Path, server: FakeServer, other_server: FakeServer
) -> None:
    watcher = Watcher()

    def dies(label: str, prompt_id: str, tokens: int) -> None:
        server.dead = True

    watcher.recorded = dies  # type: ignore[method-assign]
    prompts = PromptSet("p", tuple(Prompt(id=str(n), text="ab" * (n + 1)) for n in range(4)))
    outcomes = await run(tmp_path, server, other_server, watcher=watcher, prompts=prompts)
    assert outcomes[0].error is not None
    assert all("stopped before" in reason for reason in outcomes[1].failed.values())
    server.dead = False
    outcomes = await run(tmp_path, server, other_server, prompts=prompts)
    assert [o.failed for o in outcomes] == [{}, {}]
    with Capture.open(tmp_path / "a.msgpack") as one, Capture.open(tmp_path / "b.msgpack") as two:
        for prompt_id in one.prompt_ids:
            left, right = one.record(prompt_id).forced, two.record(prompt_id).forced
            assert left is not None and right is not None
            np.testing.assert_array_equal(left.ids, right.ids)


async def test_another_prompt_set_or_protocol_stops_with_both_values(tmp_path: Path, server: FakeServer) -> None:
    await run(tmp_path, server)
    with pytest.raises(CaptureConflictError, match=r"(?s)5.*7|7.*5"):
        await run(tmp_path, server, protocol={"top_k": 7})
    with pytest.raises(CaptureConflictError, match=PROMPTS.sha256[:8]):
        await run(tmp_path, server, prompts=PromptSet("x", PROMPTS.prompts[:1]))
    server.fingerprint = "vllm-0.32.0-other000"
    with pytest.raises(CaptureConflictError, match="other000"):
        await run(tmp_path, server)
    (outcome,) = await run(tmp_path, server, overwrite=True)
    assert outcome.recorded == 3


async def test_a_conflict_leaves_no_new_file(tmp_path: Path, server: FakeServer, other_server: FakeServer) -> None:
    await run_capture([parse_target(f"b={server.url}")], options(tmp_path), Watcher(), prompts=PROMPTS)
    with pytest.raises(CaptureConflictError):
        await run(tmp_path, server, other_server)
    assert [file.name for file in tmp_path.iterdir()] == ["b.msgpack"]


async def test_an_unreachable_server_is_named_before_anything_is_written(tmp_path: Path, server: FakeServer) -> None:
    with FakeServer() as gone:
        url = gone.url
    with pytest.raises(ServerUnreachableError, match="127.0.0.1"):
        await run_capture(
            [parse_target(f"a={server.url}"), parse_target(f"b={url}")], options(tmp_path), Watcher(), prompts=PROMPTS
        )
    assert not list(tmp_path.glob("*.msgpack"))


async def test_the_texts_of_a_reference_capture_are_scored_again(
    tmp_path: Path, server: FakeServer, other_server: FakeServer
) -> None:
    await run(tmp_path, server)
    with Capture.open(tmp_path / "a.msgpack") as reference:
        target = parse_target(f"late={other_server.url}")
        (outcome,) = await run_capture([target], options(tmp_path), Watcher(), reference=reference)
        assert outcome.recorded == 3
        with Capture.open(tmp_path / "late.msgpack") as late:
            assert late.header.reference == "a"
            for prompt_id in reference.prompt_ids:
                one, two = reference.record(prompt_id), late.record(prompt_id)
                assert one.forced is not None and two.forced is not None
                np.testing.assert_array_equal(one.forced.ids, two.forced.ids)
                assert (one.prompt_length, one.output) == (two.prompt_length, two.output)


async def test_an_answer_is_cut_to_the_context_and_said_so(tmp_path: Path, server: FakeServer) -> None:
    watcher = Watcher()
    long = PromptSet("long", (Prompt(id="long", text="z" * (MAX_MODEL_LEN - 4)),))
    (outcome,) = await run(tmp_path, server, watcher=watcher, prompts=long)
    assert outcome.failed == {}
    assert any("cut to 3 tokens" in notice for notice in watcher.notices)
    with Capture.open(tmp_path / "a.msgpack") as capture:
        forced = capture.record("long").forced
    assert forced is not None and len(forced) == MAX_MODEL_LEN - 1


async def test_a_text_too_long_for_a_server_fails_alone(tmp_path: Path, server: FakeServer) -> None:
    watcher = Watcher()
    prompts = PromptSet("p", (Prompt(id="long", text="z" * MAX_MODEL_LEN, continuation="y"), *PROMPTS.prompts))
    (outcome,) = await run(tmp_path, server, watcher=watcher, prompts=prompts)
    assert list(outcome.failed) == ["long"] and outcome.recorded == 3
    assert any("too long" in notice and "'long'" in notice for notice in watcher.notices)


async def test_nothing_that_fits_is_an_error(tmp_path: Path, server: FakeServer) -> None:
    prompts = PromptSet("p", (Prompt(id="long", text="z" * MAX_MODEL_LEN, continuation="y"),))
    with pytest.raises(FlipscopeError, match=str(MAX_MODEL_LEN)):
        await run(tmp_path, server, prompts=prompts)
    assert not list(tmp_path.glob("*.msgpack"))


async def test_a_full_disk_is_one_named_error(
    tmp_path: Path, server: FakeServer, other_server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise FlipscopeError("no space left", title="Cannot write")

    monkeypatch.setattr("probe.store.writer.CaptureWriter.append", full)
    with pytest.raises(FlipscopeError, match="no space left"):
        await run(tmp_path, server, other_server)


async def test_a_deadline_keeps_what_is_done(tmp_path: Path, server: FakeServer) -> None:
    server.delay = 0.15
    prompts = PromptSet("p", tuple(Prompt(id=str(n), text="abc", continuation="d") for n in range(20)))
    with pytest.raises(FlipscopeError, match="longer than"):
        await run(tmp_path, server, prompts=prompts, deadline=1.5)
    server.delay = 0.0
    (outcome,) = await run(tmp_path, server, prompts=prompts)
    assert outcome.kept > 0 and outcome.kept + outcome.recorded == 20


def test_targets_are_read_and_refused_with_a_reason() -> None:
    target = parse_target("q8=embedded:?kv=q8_0", ["kv=q8_0", "q8:weights=f16", "other:weights=int4"])
    assert (target.label, dict(target.dims)) == ("q8", {"kv": "q8_0", "weights": "f16"})
    for bad in ("http://127.0.0.1:8000", "=http://127.0.0.1:8000", "a=ftp://x", "a="):
        with pytest.raises(InputError):
            parse_target(bad)
    with pytest.raises(InputError, match="key=value"):
        parse_target("a=http://127.0.0.1:1", ["kv"])

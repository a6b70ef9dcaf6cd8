"""What may be compared, what a reader is warned of, and what is kept of every prompt."""

from __future__ import annotations

import math
import re
import threading

import numpy as np
import pytest
from made_captures import MadeCapture, forced, header_of, random_rows, record_of

from probe.comparability import changes
from probe.comparison import Comparison, Positions, summary
from probe.errors import NotComparableError
from probe.records import Header, PromptRecord
from probe.score.flips import Triage, TriageRules
from probe.stream import TokenStream


def two_sides(n: int, seed: int, noise: float = 0.8) -> tuple[TokenStream, TokenStream]:
    p, q, text = random_rows(n, np.random.default_rng(seed), noise=noise)
    return forced(p, [0, *text], k=20), forced(q, [0, *text], k=20)


def captures(*lengths: int, labels: tuple[str, ...] = ("f32", "bf16")) -> list[MadeCapture]:
    """A reference and a candidate over prompts p0, p1, … of these lengths (after the first token)."""
    sides = [two_sides(n, seed) for seed, n in enumerate(lengths)]
    return [
        MadeCapture(
            header_of(label),
            {f"p{at}": record_of(f"p{at}", side[min(which, 1)], index=at) for at, side in enumerate(sides)},
        )
        for which, label in enumerate(labels)
    ]


def with_headers(*headers: Header) -> list[MadeCapture]:
    stream = two_sides(4, 0)[0]
    return [MadeCapture(header, {"p0": record_of("p0", stream)}) for header in headers]


def with_records(*records: dict[str, PromptRecord]) -> list[MadeCapture]:
    return [MadeCapture(header_of(f"c{at}"), each) for at, each in enumerate(records)]


# -- refusals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 6])
def test_too_few_or_too_many_captures(count: int) -> None:
    with pytest.raises(NotComparableError, match=f"{count} capture"):
        Comparison.of(captures(3)[:1] * count)


def test_different_tokenizers_are_refused_with_both_values() -> None:
    with pytest.raises(NotComparableError, match=r"a has aaaa1111 .*b has bbbb2222"):
        Comparison.of(with_headers(header_of("a", tokenizer="aaaa1111"), header_of("b", tokenizer="bbbb2222")))


def test_an_unknown_tokenizer_is_not_refused() -> None:
    assert Comparison.of(with_headers(header_of("a", tokenizer="aaaa1111"), header_of("b"))).labels == ("a", "b")


def test_different_logprob_modes_are_refused_with_both_values() -> None:
    with pytest.raises(NotComparableError, match=r"a has raw_logprobs, b has processed_logprobs"):
        Comparison.of(with_headers(header_of("a"), header_of("b", mode="processed_logprobs")))


def test_another_text_is_refused_at_its_first_token_that_differs() -> None:
    stream, _ = two_sides(6, 0)
    other = forced([{1: -0.5}] * 6, [*stream.ids[:4].tolist(), 399, *stream.ids[5:].tolist()])
    with pytest.raises(
        NotComparableError, match=rf"prompt p0: .*position 4: token {stream.ids[4]} in c0, 399 in c1"
    ) as refused:
        Comparison.of(with_records({"p0": record_of("p0", stream)}, {"p0": record_of("p0", other)}))
    assert refused.value.hint


def test_another_text_of_a_later_prompt_is_refused_when_it_is_read() -> None:
    stream, _ = two_sides(6, 0)
    other = forced([{1: -0.5}] * 6, [0] * 7)
    comparison = Comparison.of(
        with_records(
            {"p0": record_of("p0", stream), "p1": record_of("p1", stream)},
            {"p0": record_of("p0", stream), "p1": record_of("p1", other)},
        )
    )
    comparison.scores("p0")
    for ask in (comparison.scores, comparison.overview):
        with pytest.raises(NotComparableError, match="prompt p1: the texts differ"):
            ask("p1")


@pytest.mark.parametrize(("n", "prompt_length"), [(5, 2), (6, 3)])
def test_texts_of_other_lengths_are_refused_from_the_index_alone(n: int, prompt_length: int) -> None:
    stream, _ = two_sides(6, 0)
    pair = with_records(
        {"p0": record_of("p0", stream), "p1": record_of("p1", stream)},
        {"p0": record_of("p0", stream), "p1": record_of("p1", stream.rows(0, n + 1), prompt_length=prompt_length)},
    )
    with pytest.raises(
        NotComparableError, match=rf"prompt p1: .*c0 has 7 tokens, 2 .*c1 {n + 1}, {prompt_length} of them prompt"
    ):
        Comparison.of(pair)
    assert pair[0].asked == pair[1].asked == []


def test_no_common_prompt_is_refused() -> None:
    stream, _ = two_sides(3, 0)
    with pytest.raises(NotComparableError, match=r"c0 has set \(1 prompts\)"):
        Comparison.of(with_records({"a": record_of("a", stream)}, {"b": record_of("b", stream)}))


# -- warnings ------------------------------------------------------------------------------------------------------


def warnings(*headers: Header) -> str:
    return "\n".join(Comparison.of(with_headers(*headers)).warnings)


def test_one_changed_setting_is_no_warning() -> None:
    assert warnings(
        header_of("a", settings={"cache_dtype": "auto"}), header_of("b", settings={"cache_dtype": "fp8"})
    ) == ("")


def test_two_changed_settings_are_named() -> None:
    said = warnings(
        header_of("a", settings={"cache_dtype": "auto", "attention_backend": "FLASH_ATTN"}),
        header_of("b", settings={"cache_dtype": "fp8", "attention_backend": "FLASHINFER"}),
    )
    assert "2 things changed at once between a and b" in said
    assert "attention_backend FLASH_ATTN → FLASHINFER, cache_dtype auto → fp8" in said


def test_how_much_fits_is_no_change_and_a_checkpoint_brings_its_quantisation() -> None:
    one = header_of("a", settings={"num_gpu_blocks": "100", "quantization": "None"})
    other = header_of("b", root="weights-int4", settings={"num_gpu_blocks": "260", "quantization": "gptq"})
    assert changes(one, other) == ["weights weights → weights-int4"]
    assert warnings(one, other) == ""


def test_a_setting_that_one_server_does_not_tell_is_no_change() -> None:
    assert changes(header_of("a", settings={"dtype": "float32"}), header_of("b")) == []


def test_what_the_user_turned_counts_where_the_servers_tell_less() -> None:
    said = warnings(header_of("a", dims={"tp": "1"}), header_of("b", dims={"tp": "2", "kv": "fp8"}))
    assert "2 things changed at once between a and b (kv unset → fp8, tp 1 → 2)" in said


def test_another_k_and_another_concurrency_are_warned_of() -> None:
    said = warnings(header_of("a"), header_of("b", top_k=5, concurrency=4))
    assert "a lists 20 alternatives, b 5" in said
    assert "a was scored with 1 requests in flight, b with 4" in said


def test_missing_and_failed_prompts_and_damage_are_named() -> None:
    stream, _ = two_sides(4, 0)
    reference, candidate = with_records(
        {name: record_of(name, stream) for name in ("p0", "p1", "p2")},
        {"p0": record_of("p0", stream), "p2": record_of("p2", None, failure="server died"), "x": record_of("x", None)},
    )
    candidate.damage = ("the last record was torn off",)
    comparison = Comparison.of([reference, candidate])
    assert comparison.prompt_ids == ("p0", "p2")
    assert comparison.warnings == (
        "c0 lacks 1 prompt: x",
        "c1 lacks 1 prompt: p1",
        "c1 failed on 1 prompt: p2",
        "c1: the last record was torn off",
    )
    scores = comparison.scores("p2")
    assert scores.pairs == (None,)
    assert scores.missing == ("", "server died")
    assert len(scores.ids) == 5
    overview = comparison.overview("p2")
    assert overview.tallies == (None,)
    assert np.isnan(overview.kl).all()
    assert not overview.flip.any()


def test_many_missing_prompts_are_counted_not_listed() -> None:
    stream, _ = two_sides(2, 0)
    everything = {f"p{at}": record_of(f"p{at}", stream) for at in range(9)}
    comparison = Comparison.of(with_records(everything, {"p0": everything["p0"]}))
    assert comparison.warnings == ("c1 lacks 8 prompts: p1, p2, p3, p4, p5 and 3 more",)


def test_without_the_references_stream_no_candidate_has_scores() -> None:
    stream, _ = two_sides(4, 0)
    comparison = Comparison.of(
        with_records({"p0": record_of("p0", None, failure="too long")}, {"p0": record_of("p0", stream)})
    )
    scores = comparison.scores("p0")
    assert (scores.missing, scores.pairs) == (("too long", ""), (None,))
    assert scores.ids.tolist() == stream.ids.tolist()


def test_a_prompt_that_failed_everywhere_is_empty() -> None:
    failed = {"p0": record_of("p0", None, failure="too long")}
    comparison = Comparison.of(with_records(failed, failed))
    assert len(comparison.scores("p0").ids) == 0
    overview = comparison.overview("p0")
    assert overview.kl.shape == (1, 0)
    assert math.isnan(summary([overview], 0, "all").kl)


# -- what it gives -------------------------------------------------------------------------------------------------


def test_labels_are_unique() -> None:
    comparison = Comparison.of(captures(3, labels=("a", "a", "b", "a", "a-2")))
    assert comparison.labels == ("a", "a-3", "b", "a-4", "a-2")


def test_the_same_capture_twice_is_identical() -> None:
    reference = captures(30, 12)[0]
    comparison = Comparison.of([reference, reference])
    assert comparison.labels == ("f32", "f32-2")
    found = summary(map(comparison.overview, comparison.prompt_ids), 0, "all")
    assert found.identical
    assert found.kl == 0
    pair = comparison.scores("p0").pairs[0]
    assert pair is not None
    assert pair.identical


def test_an_overview_says_what_the_scores_say() -> None:
    comparison = Comparison.of(captures(300, labels=("a", "b", "c")))
    scores, overview = comparison.scores("p0"), comparison.overview("p0")
    assert overview.kl.shape == (2, 301)
    for row, pair in enumerate(scores.pairs):
        assert pair is not None
        np.testing.assert_array_equal(overview.kl[row], pair.kl)
        np.testing.assert_array_equal(overview.flip[row], pair.flip)
        np.testing.assert_array_equal(overview.tie[row], pair.tie)
        np.testing.assert_array_equal(overview.loose[row], pair.loose())
        assert ((overview.triage[row] > 0) == pair.flip).all()
    assert overview.flip.any()
    assert set(np.unique(overview.triage)) <= {Triage.NONE, Triage.NEAR_TIE, Triage.UNCERTAIN, Triage.STRONG}
    assert not overview.flip[:, 0].any()


def test_thresholds_of_the_triage_are_parameters() -> None:
    everything = Comparison.of(captures(300), rules=TriageRules(near_tie=2.0)).overview("p0")
    assert set(everything.triage[everything.flip].tolist()) == {Triage.NEAR_TIE}


def test_an_overview_is_cheap_to_keep() -> None:
    overview = Comparison.of(captures(400, labels=("a", "b", "c", "d", "e"))).overview("p0")
    arrays = (overview.kl, overview.flip, overview.tie, overview.loose, overview.triage)
    assert sum(each.nbytes for each in arrays) == 12 * 4 * 401
    assert all(each.base is None for each in (*arrays, overview.output))  # nothing larger is kept alive


def test_output_and_prompt_positions_are_apart_and_together_all() -> None:
    stream, other = two_sides(40, 7)
    spans = ((10, 20), (30, 41))
    comparison = Comparison.of(
        with_records({"p0": record_of("p0", stream, output=spans)}, {"p0": record_of("p0", other, output=spans)})
    )
    overview = comparison.overview("p0")
    parts: list[Positions] = ["output", "prompt", "all"]
    output, prompt, everything = (summary([overview], 0, part) for part in parts)
    assert (output.tally.valid, prompt.tally.valid, everything.tally.valid) == (21, 19, 40)
    kl = overview.kl[0]
    assert output.kl == pytest.approx(np.concatenate([kl[10:20], kl[30:41]]).mean(), rel=1e-12)
    assert output.kl_max == np.concatenate([kl[10:20], kl[30:41]]).max()
    assert everything.kl == pytest.approx(np.nanmean(kl), rel=1e-12)


def test_without_spans_the_continuation_is_the_output() -> None:
    comparison = Comparison.of(captures(20))
    assert comparison.overview("p0").output.tolist() == [False] * 2 + [True] * 19
    assert summary([comparison.overview("p0")], 0).tally.positions == 19


def test_only_the_first_prompt_is_read_at_the_start_and_rows_are_let_go() -> None:
    pair = captures(*[5] * 8)
    comparison = Comparison.of(pair)
    assert pair[0].asked == ["p0"]
    for prompt in comparison.prompt_ids:
        comparison.scores(prompt)
    assert len(comparison._kept) == 2
    assert comparison.scores("p7") is comparison.scores("p7")
    comparison.overview("p1")
    assert list(comparison._kept) == ["p6", "p7"]


def test_many_threads_read_one_record_at_a_time() -> None:
    pair = captures(*[40] * 12)
    inside = threading.Lock()
    for capture in pair:
        plain = capture.record

        def guarded(prompt_id: str, plain: object = plain) -> PromptRecord:
            assert inside.acquire(blocking=False), "two threads read at once"
            try:
                assert callable(plain)
                record = plain(prompt_id)
                assert isinstance(record, PromptRecord)
                return record
            finally:
                inside.release()

        capture.record = guarded  # type: ignore[method-assign]
    comparison = Comparison.of(pair)
    flips: dict[int, list[int]] = {}
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            prompts = comparison.prompt_ids if number % 2 else comparison.prompt_ids[::-1]
            found = {prompt: int(comparison.overview(prompt).flip.sum()) for prompt in prompts}
            for prompt in prompts:
                comparison.scores(prompt)
            flips[number] = [found[prompt] for prompt in comparison.prompt_ids]
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len({tuple(each) for each in flips.values()}) == 1


def test_messages_name_labels_not_sides() -> None:
    stream, _ = two_sides(3, 0)
    other = forced([{1: -0.5}] * 3, [9] * 4)
    with pytest.raises(NotComparableError) as refused:
        Comparison.of(with_records({"p0": record_of("p0", stream)}, {"p0": record_of("p0", other)}))
    assert not re.search("reference|candidate", refused.value.detail)

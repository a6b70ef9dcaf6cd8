"""What goes wrong around a capture: folders, references, two at once, servers that do not answer."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest
from fake_vllm import FakeServer
from watching import Watcher

from probe.capture.options import CaptureOptions, parse_target
from probe.capture.run import run_capture
from probe.capture.runtime import Outcome
from probe.errors import (
    CaptureConflictError,
    CaptureFormatError,
    DeadlineError,
    FlipscopeError,
    InputError,
    NotComparableError,
    ServerRefusedError,
    TokenizerError,
)
from probe.prompts import Prompt, PromptSet
from probe.records import Protocol
from probe.store.reader import Capture

PROMPTS = PromptSet("set", tuple(Prompt(id=f"p{n}", text="abc" + "d" * n) for n in range(4)))
OTHERS = PromptSet("others", (Prompt(id="q", text="abc"), Prompt(id="r", text="abc")))
PROTOCOL = Protocol(top_k=3, max_tokens=4)


async def run(folder: Path, *addresses: str, watcher: Watcher | None = None, **changes: Any) -> list[Outcome]:
    """Capture `LABEL=URL` addresses over `PROMPTS`; other options as changes."""
    prompts, reference = changes.pop("prompts", PROMPTS), changes.pop("reference", None)
    wanted = CaptureOptions(protocol=changes.pop("protocol", PROTOCOL), folder=folder, **changes)
    return await run_capture(
        [parse_target(each) for each in addresses], wanted, watcher or Watcher(), prompts=prompts, reference=reference
    )


@pytest.mark.parametrize("where", ["file", "file/below", "x" * 300])
async def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, server: FakeServer, where: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FlipscopeError) as caught:
        await run(tmp_path / where, f"a={server.url}")
    assert where[-10:] in caught.value.detail and "exists" not in caught.value.detail.lower().replace("file exists", "")
    assert (caught.value.title, caught.value.exit_code) == ("Cannot write the capture", 2)


async def test_a_folder_in_the_captures_place_is_not_removed(tmp_path: Path, server: FakeServer) -> None:
    (tmp_path / "a.msgpack").mkdir()
    for overwrite in (False, True):
        with pytest.raises(CaptureFormatError, match=r"a\.msgpack"):
            await run(tmp_path, f"a={server.url}", overwrite=overwrite)


async def test_overwriting_a_file_that_is_being_written_loses_nothing(tmp_path: Path, server: FakeServer) -> None:
    server.delay = 0.1
    first = asyncio.create_task(run(tmp_path, f"a={server.url}"))
    while not (tmp_path / "a.msgpack").exists():
        await asyncio.sleep(0.01)
    with pytest.raises(CaptureConflictError, match="being written"):
        await run(tmp_path, f"a={server.url}", overwrite=True)
    (outcome,) = await first
    with Capture.open(tmp_path / "a.msgpack") as capture:
        assert outcome.recorded == len(capture.prompt_ids) == len(PROMPTS)


async def test_overwriting_starts_anew(tmp_path: Path, server: FakeServer) -> None:
    await run(tmp_path, f"a={server.url}")
    with pytest.raises(CaptureConflictError) as caught:
        await run(tmp_path, f"a={server.url}", prompts=OTHERS)
    assert "--overwrite" in caught.value.hint
    (outcome,) = await run(tmp_path, f"a={server.url}", prompts=OTHERS, overwrite=True)
    assert (outcome.kept, outcome.recorded) == (0, len(OTHERS))


async def test_the_reference_is_never_written_over(tmp_path: Path, server: FakeServer) -> None:
    await run(tmp_path, f"a={server.url}")
    before = (tmp_path / "a.msgpack").read_bytes()
    with Capture.open(tmp_path / "a.msgpack") as reference, pytest.raises(InputError, match="is the reference"):
        await run(tmp_path, f"a={server.url}", prompts=None, reference=reference, overwrite=True)
    assert (tmp_path / "a.msgpack").read_bytes() == before


async def test_a_reference_over_other_prompts_says_which(tmp_path: Path, server: FakeServer) -> None:
    await run(tmp_path, f"a={server.url}")
    with Capture.open(tmp_path / "a.msgpack") as reference:
        with pytest.raises(NotComparableError, match="captured over set and holds 4 of 4"):
            await run(tmp_path, f"b={server.url}", reference=reference, prompts=OTHERS)
        some = PromptSet("some", (*PROMPTS.prompts[:1], *OTHERS.prompts))
        watcher = Watcher()
        (outcome,) = await run(tmp_path, f"b={server.url}", reference=reference, prompts=some, watcher=watcher)
    assert outcome.recorded == 1
    assert any("lacks 2 of the chosen prompts" in notice and "'q', 'r'" in notice for notice in watcher.notices)


async def test_a_torn_reference_and_a_torn_file_are_announced(tmp_path: Path, server: FakeServer) -> None:
    await run(tmp_path, f"a={server.url}")
    whole = (tmp_path / "a.msgpack").read_bytes()
    with Capture.open(tmp_path / "a.msgpack") as capture:
        third = capture.summary("p2")
    torn = tmp_path / "torn.msgpack"
    torn.write_bytes(whole[: third.offset + third.length // 2])
    watcher = Watcher()
    with Capture.open(torn) as reference:
        (outcome,) = await run(tmp_path, f"b={server.url}", prompts=None, reference=reference, watcher=watcher)
    assert outcome.recorded == 2
    assert any("2 of 4 prompts" in notice for notice in watcher.notices)
    assert any("damaged" in notice for notice in watcher.notices)

    shutil.copy(torn, tmp_path / "a.msgpack")
    watcher = Watcher()
    (outcome,) = await run(tmp_path, f"a={server.url}", watcher=watcher)
    assert (outcome.kept, outcome.recorded) == (2, 2)
    assert any("torn tail" in notice for notice in watcher.notices)


async def test_two_labels_of_one_server_do_not_disturb_each_other(tmp_path: Path, server: FakeServer) -> None:
    class Starting(Watcher):
        def planned(self, label: str, prompts: int, done: int, tokens: int) -> None:
            server.crowded = server.busiest = 0  # the preflight's probes, whose numbers nobody keeps, may meet

    server.delay = 0.01
    await run(tmp_path, f"a={server.url}", f"b={server.url}/v1", watcher=Starting())
    assert server.crowded == 0 and server.busiest == 1


async def test_a_prompt_that_the_server_cannot_tokenise_is_named(
    tmp_path: Path, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = server.handle

    def textual(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if "messages" in body:
            return 400, {"error": {"message": "toy is not a multimodal model"}}
        return answer(path, body)

    monkeypatch.setattr(server, "handle", textual)
    picture = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}
    prompts = PromptSet("p", (*PROMPTS.prompts, Prompt(id="picture", messages=[picture])))
    with pytest.raises(ServerRefusedError, match=r"prompt 'picture': .*not a multimodal model") as caught:
        await run(tmp_path, f"a={server.url}", prompts=prompts)
    assert caught.value.hint


async def test_a_server_that_does_not_tokenise_needs_a_tokenizer(
    tmp_path: Path, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = server.handle
    monkeypatch.setattr(server, "handle", lambda path, body: (404, {}) if path == "/tokenize" else answer(path, body))
    with pytest.raises(ServerRefusedError) as caught:
        await run(tmp_path, f"a={server.url}")
    assert "--tokenizer" in caught.value.hint
    ids = PromptSet("ids", (Prompt(id="a", ids=[5, 6]),))
    (outcome,) = await run(tmp_path, f"a={server.url}", prompts=ids)
    assert outcome.recorded == 1


@pytest.mark.parametrize("tokenizer", ["~nobody-of-this-name/x", "x" * 5000])
async def test_a_tokenizer_that_cannot_be_a_folder(tmp_path: Path, server: FakeServer, tokenizer: str) -> None:
    with pytest.raises(TokenizerError) as caught:
        await run(tmp_path, f"a={server.url}", tokenizer=tokenizer)
    assert caught.value.hint


async def test_a_silent_server_is_named_while_it_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("probe.capture.run.PATIENCE_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        watcher = Watcher()
        # A timeout of one request holds for the first question too, not only for those that need the model.
        with pytest.raises(DeadlineError, match="a: GET"):
            await run(tmp_path, f"a={url}", watcher=watcher, request_timeout=0.5)
    assert watcher.notices == [f"a: still waiting for {url} to answer"]


@pytest.mark.parametrize("concurrency", [1, 4])
async def test_after_failures_the_file_is_as_if_there_had_been_none(
    tmp_path: Path, server: FakeServer, concurrency: int
) -> None:
    protocol = Protocol(top_k=3, max_tokens=4, concurrency=concurrency)
    await run(tmp_path, f"calm={server.url}", protocol=protocol)
    server.refuse = {4, 6}
    (outcome,) = await run(tmp_path, f"a={server.url}", protocol=protocol)
    assert len(outcome.failed) == 2
    server.refuse = set()
    await run(tmp_path, f"a={server.url}", protocol=protocol)
    with Capture.open(tmp_path / "calm.msgpack") as calm, Capture.open(tmp_path / "a.msgpack") as again:
        assert calm.digest() == again.digest()


def test_prompts_of_a_file_can_hold_what_their_capture_can(tmp_path: Path) -> None:
    """A name that no capture can hold is refused before a server is asked."""
    from probe.errors import PromptSetError
    from probe.prompts import MAX_NAME, read_prompts
    from probe.store import limits

    assert MAX_NAME == limits.MAX_NAME
    path = tmp_path / "p.jsonl"
    for line in (
        {"id": "i" * 513, "text": "a"},
        {"id": "i", "text": "a", "category": "c" * 513},
        {"id": "i", "text": "a", "ranges": [{"name": "r" * 513, "find": "a"}]},
    ):
        path.write_text(json.dumps(line))
        with pytest.raises(PromptSetError, match="at most 512"):
            read_prompts(path)

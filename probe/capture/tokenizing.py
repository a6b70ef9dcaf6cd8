"""Ids and bytes for a capture: from the server where it can, from a local tokenizer where it must."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from probe.errors import ServerRefusedError, TokenizerError
from probe.prompts import Prompt
from probe.tokens import LocalTokenizer, PieceList, ServerWords, TokenTable, text_bytes
from probe.wire.client import RuntimeClient

PROBE_TEXT = 'Hi 🦙, yö 10.0.0.1\n\t{"a": [1]}'
"""Holds what tokenizers differ in: byte pieces, umlauts, digits, control characters, runs of punctuation."""


class Tokenizing:
    """Encodes prompts as one server would.

    Args:
        client: The server that writes the text.
        table: Its token table; a `LocalTokenizer` steps in where the server has no /tokenize.
    """

    def __init__(self, client: RuntimeClient, table: TokenTable) -> None:
        self._client = client
        self._table = table

    async def prompt(self, prompt: Prompt) -> list[int]:
        """Token ids of a prompt of messages or text."""
        try:
            if prompt.messages is not None:
                return await self._client.tokenize(messages=prompt.messages, tools=prompt.tools)
            return await self._client.tokenize(text=prompt.text)
        except ServerRefusedError as error:
            local = self._local(error)
            if prompt.messages is not None:
                return local.encode_chat(prompt.messages, prompt.tools)
            return local.encode(prompt.text or "")

    async def text(self, text: str) -> list[int]:
        """Token ids of a continuation."""
        try:
            return await self._client.tokenize(text=text, add_special_tokens=False)
        except ServerRefusedError as error:
            return self._local(error).encode(text)

    def _local(self, refused: ServerRefusedError) -> LocalTokenizer:
        if refused.status != 404:
            raise refused
        if not isinstance(self._table, LocalTokenizer):
            raise ServerRefusedError(
                refused.detail,
                status=refused.status,
                hint="This server does not tokenise: give --tokenizer, or prompts and continuations as ids.",
                title=refused.title,
            )
        return self._table


async def token_table(
    client: RuntimeClient, wanted: str, notice: Callable[[str], None]
) -> tuple[TokenTable, ServerWords | None]:
    """Find where token bytes come from: the engine itself, a tokenizer, else the server's own words.

    Args:
        client: The server.
        wanted: Folder or hub id the user named; `""` tries what the server says it loaded.
        notice: Takes a warning when bytes will not be exact.

    Returns:
        The table, and itself again when it has to learn from answers.

    Raises:
        TokenizerError: the tokenizer the user named cannot be loaded, or does not speak this server's ids.
    """
    if client.engine is not None:
        return PieceList("embedded", client.engine.vocabulary()), None
    facts = await client.facts()
    source = wanted or facts.root or facts.model
    try:
        tokenizer = await asyncio.to_thread(_load, source)
        await _check(client, tokenizer)
    except TokenizerError:
        if wanted:
            raise
        notice(f"no tokenizer for {source!r}: token text will be the server's own words; --tokenizer gives exact bytes")
        words = ServerWords()
        return words, words
    return tokenizer, None


def _load(source: str) -> LocalTokenizer:
    try:
        here = Path(source).expanduser().exists()
    except (OSError, RuntimeError) as error:  # a name too long for the system, ~somebody who is not there
        raise TokenizerError(f"{source!r:.200}: {error}", hint="--tokenizer takes a folder or a hub id") from error
    if not here and source.count("/") != 1:
        raise TokenizerError(f"{source!r} is neither a folder here nor a hub id")
    return LocalTokenizer(source)


async def _check(client: RuntimeClient, tokenizer: LocalTokenizer) -> None:
    """Compare against the server: its ids of a probe text must spell that text in the tokenizer's bytes."""
    try:
        ids = await client.tokenize(text=PROBE_TEXT, add_special_tokens=False)
    except ServerRefusedError:
        return  # no /tokenize: the forced ids will show soon enough
    spelled = text_bytes(ids, tokenizer)[0].decode("utf-8", "replace")
    if PROBE_TEXT not in spelled and PROBE_TEXT.strip() != spelled.strip():
        raise TokenizerError(
            f"{tokenizer.facts.source} spells the server's ids as {spelled!r}, not {PROBE_TEXT!r}",
            hint="--tokenizer must name the tokenizer of the model that is served",
        )

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from probe.errors import TokenizerError
from probe.records import Piece
from probe.tokens import LocalTokenizer, PieceList, ServerWords, fingerprint, text_bytes


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory: pytest.TempPathFactory) -> LocalTokenizer:
    """A real byte-level BPE tokenizer, trained here."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, special_tokens=["<|end|>"])
    tokenizer.train_from_iterator(["the cat sat on the mat " * 20], trainer)
    return saved(tokenizer, tmp_path_factory.mktemp("byte-level"))


def saved(tokenizer: object, folder: Path) -> LocalTokenizer:
    tokenizer.save(str(folder / "tokenizer.json"))  # type: ignore[attr-defined]
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    return LocalTokenizer(str(folder))


@pytest.mark.parametrize("text", ["the cat", " the  mat\n\t", "Päivää 日本 🦙🇫🇮", "\x00\x1b[31m\x7f", "e\u0301\u202e"])
def test_byte_level_pieces_spell_the_text(byte_level: LocalTokenizer, text: str) -> None:
    spelled, offsets = text_bytes(byte_level.encode(text), byte_level)
    assert spelled == text.encode()
    assert len(offsets) == len(byte_level.encode(text)) + 1


def test_special_tokens_are_marked_and_unknown_ids_are_unknown(byte_level: LocalTokenizer) -> None:
    assert byte_level.piece(0) == Piece(b"<|end|>", special=True)
    assert byte_level.piece(10**6) == Piece(b"", exact=False)
    assert byte_level.piece(-1) == Piece(b"", exact=False)


def test_sentencepiece_names_become_bytes(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, decoders, models

    names = {"<unk>": 0, "\u2581Hi": 1, "<0xF0>": 2, "a": 3}
    tokenizer = Tokenizer(models.BPE(vocab=names, merges=[], byte_fallback=True))
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback()])
    found = saved(tokenizer, tmp_path)
    assert [found.piece(i).data for i in (1, 2, 3)] == [b" Hi", b"\xf0", b"a"]


def test_what_cannot_be_loaded_is_a_named_error(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="nowhere") as caught:
        LocalTokenizer(str(tmp_path / "nowhere"), offline=True)
    assert "--tokenizer" in caught.value.hint
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(TokenizerError):
        LocalTokenizer(str(tmp_path))


def test_equal_vocabularies_hash_alike_whatever_their_source(byte_level: LocalTokenizer) -> None:
    pieces = [byte_level.piece(i) for i in range(len(byte_level))]
    assert PieceList("elsewhere", pieces).facts.fingerprint == byte_level.facts.fingerprint
    assert fingerprint([*pieces[:-1], Piece(b"x")]) != byte_level.facts.fingerprint
    assert fingerprint([Piece(b"ab"), Piece(b"")]) != fingerprint([Piece(b"a"), Piece(b"b")])


def test_server_words_keep_the_shortest_that_says_something() -> None:
    words = ServerWords()
    words.learn({1: "", 2: "\ufffd", 3: " the"})
    words.learn({1: " 🦙", 2: " 日", 3: "x the"})
    words.learn({1: "🦙"})
    assert words.piece(1) == Piece("🦙".encode(), exact=False)
    assert words.piece(3) == Piece(b" the", exact=False)
    assert words.piece(9) == Piece(b"", exact=False)
    assert words.facts.fingerprint == ""


def test_several_threads_load_at_once_in_a_fresh_process(byte_level: LocalTokenizer) -> None:
    script = """
import sys, threading
from probe.tokens import LocalTokenizer
errors, ready = [], threading.Barrier(4)
def load():
    ready.wait()
    try:
        LocalTokenizer(sys.argv[1])
    except BaseException as error:
        errors.append(error)
        raise
threads = [threading.Thread(target=load) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
sys.exit(len(errors))
"""
    done = subprocess.run([sys.executable, "-c", script, byte_level.facts.source], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_character_completed_in_context_is_not_taken_for_the_token() -> None:
    words = ServerWords()
    words.learn({223: " Å", 5549: "", 7: " the", 9: "ä"})
    assert words.doubtful([223, 5549, 7, 9, 11]) == [223, 5549, 9, 11]
    words.settle({223: "\ufffd", 5549: " \ufffd", 9: "ä", 11: "x"})
    words.learn({223: "🐅"})
    assert [words.piece(i).data for i in (223, 5549, 9, 11)] == [b"", b"", "ä".encode(), b"x"]
    assert words.doubtful([223, 5549, 7, 9, 11]) == []

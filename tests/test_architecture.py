"""The lines that the design draws between parts, and the few rules every file keeps."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("probe", "tui", "commands", "main.py")
EVERYTHING = (*PRODUCT, "benchmarks", "scripts", "tests")
OPTIONAL = {"cyllama"}  # an extra: its module may be missing
READS_OR_WRITES = {
    "asyncio", "concurrent", "fcntl", "glob", "gzip", "http", "httpx", "io", "json", "mmap", "msgpack", "msgspec",
    "os", "pathlib", "pickle", "selectors", "shutil", "signal", "socket", "sqlite3", "ssl", "subprocess", "tempfile",
    "threading", "urllib", "zlib", "zstandard",
}  # fmt: skip


def sources(*parts: str) -> list[Path]:
    """Python files below these folders, or these files."""
    found = [
        path for part in parts for path in ([ROOT / part] if part.endswith(".py") else (ROOT / part).rglob("*.py"))
    ]
    return sorted(path for path in found if "__pycache__" not in path.parts)


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules(*parts: str) -> list[str]:
    return [name_of(path) for path in sources(*parts)]


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Every module that a file imports anywhere, inside functions too, with the line."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, each.name) for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}:{node.lineno} imports relatively"
            yield node.lineno, node.module
            yield from ((node.lineno, f"{node.module}.{each.name}") for each in node.names)


def crossings(parts: tuple[str, ...], forbidden: set[str]) -> list[str]:
    """Where files import something forbidden, or a part of it."""
    return [
        f"{path.relative_to(ROOT)}:{line} imports {module}"
        for path in sources(*parts)
        for line, module in imports(path)
        if any(module == each or module.startswith(each + ".") for each in forbidden)
    ]


def loaded_by(names: list[str]) -> set[str]:
    """`sys.modules` of a fresh interpreter that imported these and nothing else."""
    script = (
        "import importlib, json, sys\n"
        "for name in json.loads(sys.argv[1]):\n"
        "    try:\n"
        "        importlib.import_module(name)\n"
        "    except ModuleNotFoundError as error:\n"
        f"        if error.name.split('.')[0] not in {OPTIONAL!r}: raise\n"
        "print(json.dumps(sorted(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, json.dumps(names)], cwd=ROOT, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_probe_never_imports_textual_or_markup() -> None:
    assert crossings(("probe",), {"textual", "rich.markup", "tui", "commands", "main"}) == []
    assert not {"textual", "tui"} & loaded_by(modules("probe"))
    # httpx brings its own command, which loads all of rich: only what stands without httpx can be held to that
    without_httpx = [name for name in modules("probe") if not name.startswith(("probe.wire", "probe.capture"))]
    assert "rich.markup" not in loaded_by(without_httpx)


def test_tui_never_imports_http_tokenizers_or_the_wire() -> None:
    forbidden = {"httpx", "transformers", "tokenizers", "probe.wire", "probe.capture", "probe.tokens"}
    assert crossings(("tui",), {*forbidden, "commands", "main"}) == []
    assert not forbidden & loaded_by(modules("tui"))


def test_scores_are_functions_of_arrays() -> None:
    score = ("probe/score",)
    assert crossings(score, {*READS_OR_WRITES, "probe.store", "probe.wire", "probe.capture", "probe.paths"}) == []
    opened = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sources(*score)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"open", "print", "input"}
    ]
    assert opened == []
    loaded = loaded_by(modules(*score))
    assert not {"httpx", "textual", "msgpack", "msgspec", "transformers", "probe.store", "probe.wire"} & loaded


def test_a_comparison_needs_no_server_and_no_file_format() -> None:
    loaded = loaded_by(["probe.comparison"])
    assert not {"httpx", "textual", "transformers", "msgpack", "probe.wire", "probe.store"} & loaded


def test_only_paths_knows_where_home_is() -> None:
    home = re.compile(r"Path\.home\(")
    found = [
        str(path.relative_to(ROOT))
        for path in sources(*PRODUCT)
        if home.search(path.read_text(encoding="utf-8")) and path != ROOT / "probe" / "paths.py"
    ]
    assert found == []


@pytest.mark.parametrize("arguments", [["--help"], ["capture", "--help"], ["view", "--help"], ["--version"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    script = (
        "import runpy, sys\n"
        "sys.argv = ['main.py', *sys.argv[1:]]\n"
        "try:\n"
        "    runpy.run_path('main.py', run_name='__main__')\n"
        "except SystemExit as ended:\n"
        "    assert not ended.code, ended.code\n"
        "heavy = {'textual', 'transformers', 'httpx', 'torch', 'cyllama'} & sys.modules.keys()\n"
        "sys.exit(f'loads {sorted(heavy)}' if heavy else 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr


def test_no_file_is_too_long() -> None:
    limits = {"main.py": 80, "tui/app.py": 200}  # the command only dispatches, the app is glue
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines()) for path in sources(*EVERYTHING)
    }
    assert {name: length for name, length in lengths.items() if length > limits.get(name, 500)} == {}


def test_every_module_is_a_noun_of_its_own() -> None:
    names = {"util", "utils", "helper", "helpers", "misc", "common", "manager"}
    assert [str(path) for path in sources(*EVERYTHING) if path.stem in names] == []


def test_nothing_is_raised_while_a_group_is_handled() -> None:
    """Before 3.11.4 (Debian 12 has 3.11.2) Python wraps what `except*` raises into a group: a traceback to the user."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sources(*PRODUCT)
        for attempt in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(attempt, ast.TryStar)
        for handler in attempt.handlers
        for node in ast.walk(handler)
        if isinstance(node, ast.Raise) and node.exc is not None
    ]
    assert found == []


def test_colours_live_in_themes() -> None:
    colour = re.compile(r"#[0-9a-fA-F]{6}\b|#[0-9a-fA-F]{8}\b|\brgb\(\s*\d")
    files = [*sources(*PRODUCT, "benchmarks", "scripts"), *(ROOT / "tui").rglob("*.tcss")]
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in files
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if colour.search(line)
    ]
    assert found == []


def test_nothing_refers_to_a_folder_outside_the_repository() -> None:
    outside = re.compile(r"\.\./" + r"shared|(?<![\w/.])/" + r"work/|/tmp/" + r"env")
    skipped = {".git", "__pycache__", "build", "dist"}
    found = []
    for path in ROOT.rglob("*"):
        inside = path.relative_to(ROOT)
        caches = [part for part in inside.parts[:-1] if part.startswith(".") and part != ".ci"]
        if not path.is_file() or caches or skipped & set(inside.parts) or path.stat().st_size > 4 << 20:
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{inside}:{number}" for number, line in enumerate(text.splitlines(), 1) if outside.search(line)]
    assert found == []

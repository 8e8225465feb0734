"""Documentation that is true: docstrings are there, code in documents runs, commands in documents
are ones that the command line takes, IR in documents is what the compiler makes, links lead
somewhere.

A block of IR in a document follows a line ``<!-- stage: NAME -->`` (the kernel), ``<!-- body: NAME
-->`` (its statements) or ``<!-- pack: NAME -->``; ``pytest --accept`` writes what is made now.
"""

from __future__ import annotations

import ast
import importlib
import linecache
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import tilewright as tw
from checkout import ROOT
from tilewright.cli.app import app
from tilewright.errors import TilewrightError
from tilewright.ir import Kernel, difference, parse_kernel, parse_kernels, to_text, verify
from tilewright.machines import nvidia, spirv, x86
from tilewright.recipes import choose
from tilewright.recipes.config import WorkgroupConfig
from tilewright.recipes.start import Start
from tilewright.tune.database import Database
from tuned_rows import row
from workgroup_configs import with_fields

SOURCE = ROOT / "src" / "tilewright"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])

# Without a docstring, because the name and the signature say all there is.
PLAIN = {
    "ir/intervals.py": "is_empty add negate subtract scale multiply minimum maximum absolute "
    "contains",
    "targets/llvm/plan.py": "ForPlan WhilePlan IfPlan LetPlan AllocatePlan StorePlan CallPlan",
}


@cache
def _undocumented() -> dict[str, tuple[bool, list[str]]]:
    """Of each file whether it has a docstring, and what in it has none."""
    result = {}
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        known = bool(ast.get_docstring(tree))
        result[path.relative_to(SOURCE).as_posix()] = (known, undocumented(tree))
    return result


def undocumented(tree: ast.Module) -> list[str]:
    """Public functions and classes of a module without a docstring. A function that a front end's
    table lists does what the framework's op of that name does; what several signatures have in
    common is said of the function behind them."""
    return [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and not node.name.startswith("_")
        and not ast.get_docstring(node)
        and not any(map(_lists, node.decorator_list))
    ]


def _lists(decorator: ast.expr) -> bool:
    if isinstance(decorator, ast.Name):
        return decorator.id == "overload"
    called = decorator.func if isinstance(decorator, ast.Call) else None
    return isinstance(called, ast.Name) and called.id in ("aten", "aten_complex", "op")


def test_modules_have_docstrings() -> None:
    assert [file for file, (known, _) in _undocumented().items() if not known] == []


def test_public_functions_and_classes_have_docstrings() -> None:
    missing = {
        f"{file}: {name}"
        for file, (_, names) in _undocumented().items()
        for name in names
        if name not in PLAIN.get(file, "").split()
    }
    assert missing == set()


def test_missing_docstrings_are_found() -> None:
    tree = ast.parse("def f(): ...\nclass C: ...\ndef g():\n    'Says it.'\ndef _h(): ...")
    tree.body += ast.parse("@aten('relu.default')\ndef relu(at, x): ...").body
    assert undocumented(tree) == ["f", "C"]


def test_what_a_user_sees_has_docstrings() -> None:
    assert [name for name in tw.__all__ if not getattr(tw, name).__doc__] == []


# Blocks of documents.


def blocks(text: str, language: str) -> list[tuple[int, str]]:
    """The fenced blocks of one language, each with the number of its first line."""
    result = []
    for match in re.finditer(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        result.append((text.count("\n", 0, match.start(1)) + 1, match.group(1)))
    return result


def commands(text: str) -> Iterator[list[str]]:
    """The arguments of each ``tilewright`` command in the shell blocks of a document."""
    for _, block in blocks(text, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            for part in line.split("&&"):
                words = shlex.split(part, comments=True)
                if words[:1] == ["tilewright"]:
                    yield words[1:]


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_blocks_are_found() -> None:
    text = "a\n```python\nx = 1\n```\n```sh\npip && tilewright bench conv \\\n  x  # y\nls\n```\n"
    assert blocks(text, "python") == [(3, "x = 1\n")]
    assert list(commands(text)) == [["bench", "conv", "x"]]


WITH_PYTHON = [path for path in DOCUMENTS if blocks(_read(path), "python")]


@pytest.mark.parametrize("path", WITH_PYTHON, ids=lambda path: path.name)
def test_python_in_documents_runs(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The blocks of one document share their names, as a reader would type them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    # Classes look their module up.
    module = ModuleType("document")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    names = vars(module)
    for line, block in blocks(_read(path), "python"):
        run_block(path, line, block, names)
    assert len(names) > len(vars(ModuleType("document")))


def run_block(path: Path, line: int, block: str, names: dict[str, object]) -> None:
    """Runs a block. Kernels are made of their source, which Python finds here, as it does that of
    notebooks."""
    file, text = f"{path}, line {line}", "\n" * (line - 1) + block
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(text, file, "exec"), names)


OF_FRAMEWORKS = [
    path
    for path in DOCUMENTS
    if blocks(_read(path), "py") and path.name != "first-steps.md"  # a whole model, below
]


@pytest.mark.parametrize("path", OF_FRAMEWORKS, ids=lambda path: path.name)
def test_python_of_frameworks_in_documents_runs(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind the other blocks of the document."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    text = _read(path)
    result = blocks(text, "py")
    for _, block in result:
        for package in re.findall(r"^import (torch|jax)", block, re.MULTILINE):
            pytest.importorskip(package)
    names: dict[str, object] = {"__name__": "document"}
    for line, block in (*blocks(text, "python"), *result):
        run_block(path, line, block, names)
    assert {"torch", "jax", "onnx"} & names.keys()


def test_models_in_documents_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for package in ("torch", "transformers"):
        pytest.importorskip(package)
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    ((line, block),) = blocks(_read(ROOT / "docs" / "first-steps.md"), "py")
    names: dict[str, object] = {}
    exec(compile("\n" * (line - 1) + block, "first-steps.md", "exec"), names)
    assert "torch" in names


KERNELS = [
    pytest.param(path, line, block, id=f"{path.name}-{line}")
    for path in DOCUMENTS
    for line, block in blocks(_read(path), "tilewright")
]


@pytest.mark.parametrize(("path", "line", "block"), KERNELS)
def test_kernels_in_documents_are_well_formed(path: Path, line: int, block: str) -> None:
    kernels = parse_kernels("\n" * (line - 1) + block, file=path.name)
    assert kernels
    for kernel in kernels:
        verify(kernel)
        assert difference(kernel, parse_kernel(to_text(kernel))) is None


COMMANDS = sorted(
    {shlex.join(words): words for path in DOCUMENTS for words in commands(_read(path))}.items()
)


def refusal(words: list[str]) -> str | None:
    """What the command line finds wrong with a command, before it does anything."""
    group: Any = typer.main.get_command(app)
    try:
        with group.make_context("tilewright", list(words)) as context:
            name, command, rest = group.resolve_command(context, words)
            command.make_context(name, rest, parent=context).close()
    except TilewrightError as error:
        return str(error)
    except Exception as error:
        # Newer versions of typer hold a click of their own: its errors are known by what they do.
        if hasattr(error, "format_message"):
            return str(error.format_message())
        if type(error).__name__ != "Exit":  # --help
            raise
    return None


@pytest.mark.parametrize("words", [w for _, w in COMMANDS], ids=[text for text, _ in COMMANDS])
def test_commands_in_documents_parse(words: list[str]) -> None:
    assert refusal(words) is None


def test_wrong_commands_are_found() -> None:
    assert refusal(["verify", "conv", "--no-such-knob"]) is not None
    assert refusal(["no-such-command"]) is not None


# Commands on a whole network, or that time, take too long here.
QUICK = [
    (t, w)
    for t, w in COMMANDS
    if not {"--random", "bench", "tune", "-a"} & set(w) and ("--set" not in w or "kernel" in w)
]

# Kernels that begin with the comment `# NAME.tw` are files that commands take.
_FILE = re.compile(r"# (\S+\.tw)\n")
FILES = {
    named.group(1): block
    for path in DOCUMENTS
    for _, block in blocks(_read(path), "tilewright")
    if (named := _FILE.match(block))
}


@pytest.mark.parametrize("words", [w for _, w in QUICK], ids=[text for text, _ in QUICK])
def test_quick_commands_in_documents_run(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    for name in words if words[0] == "db" else ():
        if name.endswith(".db"):
            with Database(tmp_path / name) as database:
                database.add(row(title="matmul 64x96:96x128"))
        elif words[1] == "import" and name.endswith(".json"):
            (tmp_path / name).write_text('{"schema": 1, "rows": []}')
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert "FAILED" not in result.output


# IR in documents: a fixed machine, so that every reader gets the same.

_STAGE = re.compile(
    r"^<!-- (?P<what>stage|body|pack): (?P<name>[\w ]+) -->\n```text\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@cache
def _walked() -> tuple[dict[str, Kernel], dict[str, Kernel]]:
    """The stages and the packing kernels of the convolution that the documents walk through."""
    op = tw.convolution(
        "mb1ic16ih14oc32kh3ph1", src="nhwc", dst="nhwc", epilogue=[tw.bias(), tw.relu()]
    ).resolved()
    _, schedule = choose.choose(Start.of(op), x86.machine("avx512", cores=2))
    gpu = spirv.machine("gpu")
    config, _ = choose.choose(Start.of(op), gpu)
    assert isinstance(config, WorkgroupConfig)
    ahead = choose.schedule(Start.of(op), gpu, with_fields(config, stages=2))
    groups = {f"workgroups {name}": stage for name, stage in ahead.stages.items()}
    blocks = {f"blocks {name}": stage for name, stage in _in_blocks().items()}
    return {**schedule.stages, **groups, **blocks}, schedule.packed


def _in_blocks() -> dict[str, Kernel]:
    """The stages of the convolution with channels in blocks of four."""
    op = tw.convolution(
        "mb16ic64ih18oc64oh16kh3",
        dtype="f16",
        src="N(C/4)HW4",
        dst="N(C/4)HW4",
        epilogue=[tw.bias(), tw.relu()],
    ).resolved()
    gpu = nvidia.machine("sm_70")
    config, _ = choose.choose(Start.of(op), gpu)
    assert isinstance(config, WorkgroupConfig)
    # Not copied ahead: there is less to read.
    schedule = choose.schedule(Start.of(op), gpu, with_fields(config, stages=1, fill="copy"))
    return dict(schedule.stages)


def _made(what: str, name: str) -> str:
    stages, packs = _walked()
    kernels = packs if what == "pack" else stages
    if name not in kernels:
        return f"(there is no {what} {name}, but {', '.join(kernels)})\n"
    kernel = kernels[name]
    return (to_text(kernel.body) if what == "body" else to_text(kernel)) + "\n"


def with_ir(text: str, made: Callable[[str, str], str] = _made) -> str:
    """A document with its blocks of IR made anew."""

    def again(match: re.Match[str]) -> str:
        head = match.group().partition("```text\n")[0]
        return f"{head}```text\n{made(match['what'], match['name'])}```"

    return _STAGE.sub(again, text)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_ir_in_documents_is_what_is_made(path: Path, request: pytest.FixtureRequest) -> None:
    text = _read(path)
    assert text.count("<!-- stage") + text.count("<!-- body") + text.count("<!-- pack") == len(
        _STAGE.findall(text)
    )
    result = with_ir(text)
    if request.config.getoption("--accept"):
        path.write_text(result, encoding="utf-8")
        return
    assert text == result, "`pytest --accept` writes what is made now"


def test_stale_ir_is_found() -> None:
    text = "<!-- body: tiled -->\n```text\nold\n```\nand so on"
    assert with_ir(text, lambda *_: "new\n") == text.replace("old", "new")
    assert "there is no stage x" in with_ir("<!-- stage: x -->\n```text\n```")


def test_walked_stages_parse_back() -> None:
    for kernel in _walked()[0].values():
        assert to_text(parse_kernel(to_text(kernel))) == to_text(kernel)


# Names, links and paths.


def unknown_names(text: str) -> list[str]:
    """What is named by its module, and is not there."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return [
        name
        for name in re.findall(r"`([a-z_]\w*(?:\.\w+)+)(?:\([^`]*\))?`", prose)
        if (SOURCE / name.split(".")[0]).is_dir()
        and not name.endswith(".py")
        and not _is_there(name)
    ]


def _is_there(name: str) -> bool:
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        with suppress(ImportError):
            result: Any = importlib.import_module(".".join(["tilewright", *parts[:count]]))
            for part in parts[count:]:
                result = getattr(result, part, None)
            return result is not None
    return False


# But of that which speaks of what was.
OF_NOW = [path for path in DOCUMENTS if path.name != "CHANGELOG.md"]


@pytest.mark.parametrize("path", OF_NOW, ids=lambda path: path.name)
def test_names_in_documents_are_there(path: Path) -> None:
    assert unknown_names(_read(path)) == []


def test_unknown_names_are_found() -> None:
    text = "`ir.gone` `ir.visit.walk` `ir.visit.gone` `kernel.pack` `ir.parse_kernel(...)`\n"
    assert unknown_names(text + "```text\nir.gone\n```\n") == ["ir.gone", "ir.visit.gone"]


def dead_links(path: Path, text: str) -> list[str]:
    """Links to files that are not there, and paths of the source that are not."""
    result = []
    for link in re.findall(r"\]\(([^)#\s]+)", text):
        if "://" not in link and not (path.parent / link).exists():
            result.append(link)
    for named in re.findall(r"`((?:src/tilewright|tests|docs|examples|\.ci)/[\w./-]*)`", text):
        if not (ROOT / named).exists():
            result.append(named)
    return result


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    assert dead_links(path, _read(path)) == []


def test_dead_links_are_found() -> None:
    text = "[a](gone.md) [b](https://x.y) [c](README.md#x) `src/tilewright/gone.py` `tests/`"
    assert dead_links(ROOT / "README.md", text) == ["gone.md", "src/tilewright/gone.py"]

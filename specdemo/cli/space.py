"""``space``: a folder with exactly what a Hugging Face Space needs, ready to be pushed."""

from __future__ import annotations

import argparse
import ast
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

from specdemo.cli.files import FileProblem
from specdemo.models.preflight import gigabytes

ROOT = Path(__file__).resolve().parents[2]
ENTRY = "app.py"
BESIDE = (ENTRY, "requirements.txt", "README.md", "LICENSE")
PACKAGE, ASSETS = "specdemo", "assets"
LARGEST = 10_000_000
"""Bytes of a file that git takes to the hub without its large file storage."""


def add_space(parser: argparse.ArgumentParser) -> None:
    """Options of ``space``."""
    parser.add_argument("folder", metavar="FOLDER", help="a folder that is empty or not there yet")
    parser.set_defaults(run=write_space)


def write_space(args: argparse.Namespace) -> None:
    """Write the folder, and say what is in it and how it gets to the hub."""
    folder = Path(args.folder)
    paths = space_files(ROOT)
    _check(folder, paths)
    try:
        for path in paths:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / path, folder / path)
    except OSError as error:
        raise FileProblem(f"{folder} cannot be written: {error.strerror}.") from error
    total = sum((ROOT / path).stat().st_size for path in paths)
    print(f"{folder} holds a Space: {len(paths)} files, {gigabytes(total)}, none above 10 MB. To push it:")
    print("  hf auth login")
    print("  hf repos create OWNER/NAME --type space --sdk gradio")
    print(f"  hf upload OWNER/NAME {shlex.quote(str(folder))} . --type space")
    print("Hardware, and secrets such as HF_TOKEN, are chosen in the Space's settings, never in a file.")


def space_files(root: Path) -> list[Path]:
    """What the app reads when it runs, relative to ``root``: nothing of tests, benches or training.

    Modules are found by following the imports from the entry, so that a new one is never forgotten.
    """
    modules = _imported(root, root / ENTRY)
    folders = {path.parent for path in modules}
    # Scripts and styles are read from the folder "web" beside the modules that show them.
    data = [p for f in folders for p in (f / "web").glob("*") if p.is_file()]
    assets = [p for p in (root / ASSETS).rglob("*") if p.is_file()]
    found = {path.relative_to(root) for path in (*modules, *data, *assets)}
    return sorted({*map(Path, BESIDE), *(p for p in found if not _leftover(p))})


def _leftover(path: Path) -> bool:
    """Caches, and what editors and systems leave behind."""
    return any(part.startswith((".", "__pycache__")) for part in path.parts)


def _imported(root: Path, entry: Path) -> set[Path]:
    """The package's modules that a module imports, directly or not, wherever in it the imports stand."""
    found: set[Path] = set()
    waiting = [entry]
    while waiting:
        for name in _names(waiting.pop()):
            # Importing a module runs the packages around it first.
            parts = name.split(".")
            for length in range(1, len(parts) + 1):
                path = _module(root, parts[:length])
                if path is not None and path not in found:
                    found.add(path)
                    waiting.append(path)
    return found


def _names(module: Path) -> Iterator[str]:
    """Names inside the package that a module imports; ``from x import y`` may mean a module ``x.y``."""
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"), str(module))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        yield from (name for name in names if name.split(".")[0] == PACKAGE)


def _module(root: Path, parts: list[str]) -> Path | None:
    """The file of a module or of a package; None for a name inside one."""
    path = root.joinpath(*parts)
    candidates = (path.with_suffix(".py"), path / "__init__.py")
    return next((file for file in candidates if file.is_file()), None)


def _check(folder: Path, paths: list[Path]) -> None:
    """
    Raises:
        FileProblem: the folder is in use, or a file would not get through.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileProblem(f"{folder} is not empty; give a folder that is, or one that is not there yet.")
    large = [path for path in paths if (ROOT / path).stat().st_size > LARGEST]
    if large:
        raise FileProblem(f"{large[0]} is larger than 10 MB; split it, for example with max_shard_size='9MB'.")

"""``space``: writes a folder with the files of a Hugging Face Space, ready to be pushed."""

from __future__ import annotations

import argparse
import shlex
import shutil
from modulefinder import ModuleFinder
from pathlib import Path

from specdemo.cli.files import FileProblem, reported
from specdemo.models.preflight import gigabytes

ROOT = Path(__file__).resolve().parents[2]
ENTRY = "app.py"
BESIDE = (ENTRY, "requirements.txt", "README.md", "LICENSE")
ASSETS = "assets"
LARGEST = 10_000_000  # bytes; git pushes larger files to the hub only through large file storage


def add_space(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="FOLDER", help="a folder that is empty or not there yet")
    parser.set_defaults(run=write_space)


def write_space(args: argparse.Namespace) -> None:
    """Write the folder, and print how to push it."""
    folder = Path(args.folder)
    paths = space_files(ROOT)
    _check(folder, paths)
    with reported(folder, "written"):
        for path in paths:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / path, folder / path)
    total = sum((ROOT / path).stat().st_size for path in paths)
    print(f"{folder} holds a Space: {len(paths)} files, {gigabytes(total)}, none above 10 MB. To push it:")
    print("  hf auth login")
    print("  hf repos create OWNER/NAME --type space --sdk gradio")
    print(f"  hf upload OWNER/NAME {shlex.quote(str(folder))} . --type space")
    print("Hardware, and secrets such as HF_TOKEN, are chosen in the Space's settings, never in a file.")


def space_files(root: Path) -> list[Path]:
    """The files that the running app reads, relative to ``root``, without tests, benches and training.

    Modules are found by following the imports from ``app.py``, so that a new one is never forgotten.
    """
    finder = ModuleFinder([str(root)])  # of this path only, so that other packages are left out
    finder.run_script(str(root / ENTRY))
    modules = [Path(file) for m in finder.modules.values() if (file := getattr(m, "__file__", None))]
    folders = {path.parent for path in modules}
    # Scripts and styles are read from the folder "web" beside the modules that show them.
    data = [p for f in folders for p in (f / "web").glob("*") if p.is_file()]
    assets = [p for p in (root / ASSETS).rglob("*") if p.is_file()]
    found = {path.relative_to(root) for path in (*modules, *data, *assets)}
    return sorted({*map(Path, BESIDE), *(p for p in found if not _leftover(p))})


def _leftover(path: Path) -> bool:
    return any(part.startswith((".", "__pycache__")) for part in path.parts)


def _check(folder: Path, paths: list[Path]) -> None:
    """Refuse a folder that is not empty, and files too large."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileProblem(f"{folder} is not empty; give a folder that is, or one that is not there yet.")
    large = [path for path in paths if (ROOT / path).stat().st_size > LARGEST]
    if large:
        raise FileProblem(f"{large[0]} is larger than 10 MB; split it, for example with max_shard_size='9MB'.")

"""``space``: writes a folder with the files of a Hugging Face Space, ready to be pushed."""

from __future__ import annotations

import argparse
import shlex
import shutil
from pathlib import Path

from specdemo.cli.files import FileProblem, reported
from specdemo.models.preflight import gigabytes

ROOT = Path(__file__).resolve().parents[2]
BESIDE = ("app.py", "requirements.txt", "README.md", "LICENSE")
LEFT_OUT = ("bench", "cli", "training", "__main__.py")
"""Rooms above or beside the page, which nothing below them imports."""
ASSETS = "assets"
LARGEST = 10_000_000  # bytes; git pushes larger files to the hub only through large file storage


def add_space(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="FOLDER", help="a folder that is empty or not there yet")
    parser.set_defaults(run=write_space)


def write_space(args: argparse.Namespace) -> None:
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
    """The files that the running app reads, relative to ``root``: no tests, no benches, no training."""
    paths = [p.relative_to(root) for top in ("specdemo", ASSETS) for p in (root / top).rglob("*") if p.is_file()]
    wanted = [p for p in paths if p.parts[1] not in LEFT_OUT and (p.suffix != ".md" or p.parts[0] == ASSETS)]
    leftovers = {p for p in wanted if any(part.startswith((".", "__pycache__")) for part in p.parts)}
    return sorted({*map(Path, BESIDE), *wanted} - leftovers)


def _check(folder: Path, paths: list[Path]) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileProblem(f"{folder} is not empty; give a folder that is, or one that is not there yet.")
    large = [path for path in paths if (ROOT / path).stat().st_size > LARGEST]
    if large:
        raise FileProblem(f"{large[0]} is larger than 10 MB; split it, for example with max_shard_size='9MB'.")

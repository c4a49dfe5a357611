"""Files of people: an error while one is written leaves what was there."""

from __future__ import annotations

import argparse
import os
import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest
from made_traces import plain_lane

from specdemo.cli.files import FileProblem, Outputs
from specdemo.files import write_whole
from specdemo.view.export import export_html

LARGE = "x" * 10_000


@contextmanager
def full_disk() -> Iterator[None]:
    """Files of this process can have 100 bytes: the rest of a write fails as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(
    ("write", "error"),
    [
        (lambda path: write_whole(path, LARGE), OSError),
        (lambda path: Outputs(argparse.Namespace(json=str(path)), {"json": ("", str)}).write(LARGE), FileProblem),
        (lambda path: export_html([plain_lane([0.1])], path), OSError),
    ],
    ids=["text", "command line", "replay"],
)
def test_a_full_disk_leaves_the_file_that_was_there(write, error: type[Exception], tmp_path: Path) -> None:
    """Guards an afternoon's recording against its own next version."""
    path = tmp_path / "kept.json"
    path.write_text("what was there")
    with full_disk(), pytest.raises(error):
        write(path)
    assert path.read_text() == "what was there"
    assert list(tmp_path.iterdir()) == [path], "nothing half-written stays"
    write(path)
    assert path.read_text() != "what was there"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_keeps_its_permissions_and_its_links(tmp_path: Path) -> None:
    path, link = tmp_path / "file", tmp_path / "link"
    path.write_text("old")
    path.chmod(0o640)
    link.symlink_to(path.name)
    write_whole(link, "new")
    assert link.is_symlink()
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_pipes_and_devices_are_written_to(tmp_path: Path) -> None:
    """Guards ``--json /dev/stdout``, and against a regular file in the place of ``/dev/null``."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write_whole(pipe, "through it")
    reader.join(timeout=10)
    assert read == ["through it"]
    write_whole("/dev/null", "nowhere")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    with (tmp_path / "redirected").open("w+") as output:  # as a shell does with > for its command
        write_whole(f"/proc/self/fd/{output.fileno()}", "into it")
        assert output.read() == "into it"

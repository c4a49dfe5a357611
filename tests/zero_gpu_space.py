"""A program on a stand-in for ZeroGPU: the real ``spaces`` package, whose workers are forked from it.

What a machine without a GPU cannot have is CUDA and its emulation: models stay on the CPU, and from the launch on
this program may not compute with them, as their weights would be on disk. Prints what jobs gave, as one JSON line.
"""

from __future__ import annotations

import json
import os
import sys
import types
from collections.abc import Iterator
from typing import Any

import torch

MAIN = os.getpid()
_call = torch.nn.Module._call_impl


def offloaded(module: torch.nn.Module, *arguments: Any, **options: Any) -> Any:
    """What calling a model does in the program after the launch."""
    if os.getpid() == MAIN:
        raise RuntimeError("Cannot apply a function on a disk-offloaded tensor")
    return _call(module, *arguments, **options)


def platform() -> types.ModuleType:
    """In place of ``spaces.zero.torch``."""
    stand_in = types.ModuleType("spaces.zero.torch")
    for name in ("patch", "unpatch", "enter_mode"):
        setattr(stand_in, name, lambda: None)
    stand_in.init = lambda uuid: None
    stand_in.move = lambda callback=None: None
    stand_in.size = lambda: 0
    stand_in.is_in_bad_fork = lambda: False

    def pack() -> int:
        torch.nn.Module.__call__ = offloaded
        return 0

    stand_in.pack = pack
    return stand_in


sys.modules["spaces.zero.torch"] = platform()

from tab import Tab, tokens_of  # noqa: E402

from specdemo.losslessness.certify import TOKENS  # noqa: E402
from specdemo.models.request import PairRequest, request_pair  # noqa: E402
from specdemo.runs.zero_gpu import ZeroGpuStore  # noqa: E402
from specdemo.settings import Settings  # noqa: E402
from specdemo.ui.jobs import job as jobs  # noqa: E402
from specdemo.ui.jobs import zero_gpu  # noqa: E402
from specdemo.ui.jobs.batch import BatchJob  # noqa: E402
from specdemo.ui.jobs.job import Job, JobState, LaneRequest  # noqa: E402
from specdemo.ui.jobs.limits import PRIVATE  # noqa: E402
from specdemo.ui.jobs.losslessness import CheckJob  # noqa: E402
from specdemo.ui.jobs.measuring import MeasureJob  # noqa: E402
from specdemo.ui.jobs.queue import (  # noqa: E402
    JobQueue,
    JobRunner,
    Visitor,
)
from specdemo.ui.jobs.race import RaceJob  # noqa: E402
from specdemo.ui.jobs.worker import Stop  # noqa: E402
from specdemo.ui.page import build, launch_options  # noqa: E402

PROMPT = "Book a table for two near the harbour."
WRITING = "Write a story about a lighthouse keeper."
SETTINGS = Settings(max_new_tokens=24, gamma=4)
PLAIN = Settings(strategy="autoregressive", max_new_tokens=24)


def main() -> None:
    jobs.SHORTEST = jobs.LONGEST  # this is a CPU, and perhaps a busy one
    store = ZeroGpuStore()
    page = build(store)
    found: dict[str, Any] = {"ready_before_launch": [load.request.name for load in store.resident()]}
    _, url, _ = page.launch(prevent_thread_lock=True, quiet=True, **launch_options())
    runner, pair = JobRunner(store, JobQueue(PRIVATE, shared=True)), request_pair("builtin")

    def states(job: Job, stop: Stop | None = None) -> Iterator[JobState]:
        return runner.run(job, Visitor("test"), stop or Stop())

    def race(*lanes: Settings, on: PairRequest = pair) -> RaceJob:
        return RaceJob(PROMPT, tuple(LaneRequest(settings, on) for settings in lanes))

    *_, ended = states(race(PLAIN, SETTINGS))
    found["race"] = [ended.phase, *(tokens_of(ended.result.value, lane) for lane in range(2))]
    found["kept"] = [list(trace.token_ids) for trace in ended.result.recording.traces]
    *_, ended = states(MeasureJob([PROMPT], LaneRequest(SETTINGS, pair), gammas=(2, 3)))
    runs = [[r.gamma, sum(s.emitted for s in r.steps)] for r in ended.result.runs]
    found["sweep"] = [ended.phase, ended.message, runs]
    *_, ended = states(BatchJob([PROMPT], LaneRequest(SETTINGS, pair), 2))
    found["batch"] = [ended.phase, tokens_of(ended.result, 3)]
    *_, ended = states(CheckJob((PROMPT,), LaneRequest(SETTINGS, pair), 1, TOKENS))
    found["check"] = [ended.phase, ended.result.outcome if ended.result else ended.message]
    stop, long = Stop(), Settings(strategy="autoregressive", max_new_tokens=900, ignore_eos=True)
    for ended in states(race(long, long), stop):
        if ended.result.value["rounds"]:
            stop.set()
    found["stopped"] = [ended.phase, len(tokens_of(ended.result.value, 0)) < 900]
    left = states(race(long, long))
    while not next(left).result.value["rounds"]:
        pass
    left.close()
    jobs.SHORTEST = jobs.LONGEST = zero_gpu.MARGIN_SECONDS + 2
    *_, ended = states(race(long, long))
    found["over"] = [ended.phase, len(tokens_of(ended.result.value, 0)) < 900, ended.message]
    jobs.SHORTEST = jobs.LONGEST = 120
    other = request_pair("builtin-target")
    *_, ended = states(race(PLAIN, PLAIN, on=other))
    found["other"] = [ended.phase, tokens_of(ended.result.value, 0), store.find(other).place]
    with Tab(url) as tab:
        *_, view = tab.run(prompt=WRITING, max__tokens=16)
        found["page"] = [view["phase"], view["message"], tokens_of(tab.whole(view), 1)]
    page.close()
    print("FOUND " + json.dumps(found), flush=True)


if __name__ == "__main__":
    main()

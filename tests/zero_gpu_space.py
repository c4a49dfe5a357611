"""A program on a stand-in for ZeroGPU: the real ``spaces`` package, whose workers are forked from it.

What a machine without a GPU cannot have is CUDA and its emulation: models stay on the CPU, and from the launch on
this program may not compute with them, as their weights would be on disk. Prints what jobs gave, as one JSON line.
"""

from __future__ import annotations

import json
import os
import sys
import types
from threading import Event
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

from specdemo.bench.kills import PROMPT as WRITING  # noqa: E402
from specdemo.bench.tab import Page, Tab, tokens_of  # noqa: E402
from specdemo.losslessness.certify import TOKENS  # noqa: E402
from specdemo.models.request import request_pair  # noqa: E402
from specdemo.runs.zero_gpu import ZeroGpuStore  # noqa: E402
from specdemo.settings import Settings  # noqa: E402
from specdemo.ui.jobs import gpu_time  # noqa: E402
from specdemo.ui.jobs import zero_gpu as gpu_jobs  # noqa: E402
from specdemo.ui.jobs.batch import BatchPlan, batch_views  # noqa: E402
from specdemo.ui.jobs.losslessness import Plan as CheckPlan  # noqa: E402
from specdemo.ui.jobs.losslessness import check_states  # noqa: E402
from specdemo.ui.jobs.measuring import measure_states  # noqa: E402
from specdemo.ui.jobs.race import race_updates  # noqa: E402
from specdemo.ui.jobs.sweep import Plan  # noqa: E402
from specdemo.ui.page import build, launch_options  # noqa: E402

PROMPT = "Book a table for two near the harbour."
SETTINGS = Settings(max_new_tokens=24, gamma=4)
PLAIN = Settings(strategy="autoregressive", max_new_tokens=24)


def main() -> None:
    gpu_time.SHORTEST = gpu_time.LONGEST  # this is a CPU, and perhaps a busy one
    store = ZeroGpuStore()
    page = build(store)
    found: dict[str, Any] = {"ready_before_launch": [load.request.name for load in store.resident()]}
    _, url, _ = page.launch(prevent_thread_lock=True, quiet=True, **launch_options())
    request = request_pair("builtin")
    with store.using(request) as load:
        kept: list[Any] = []
        *_, view = race_updates(store.thread, [load, load], PROMPT, [PLAIN, SETTINGS], Event(), kept.append)
        found["race"] = [view["phase"], tokens_of(view, 0), tokens_of(view, 1)]
        found["kept"] = [[list(trace.token_ids) for trace in recording.traces] for recording in kept]
        sweep = Plan([PROMPT], SETTINGS, range(2, 4), 1)
        *_, state = measure_states(store.thread, load, sweep.measurement, Event())
        runs = [[r.gamma, sum(s.emitted for s in r.steps)] for r in state.report.runs]
        found["sweep"] = [state.phase, state.message, runs]
        *_, batch = batch_views(store.thread, load, BatchPlan([PROMPT], 2, SETTINGS), Event())
        found["batch"] = [batch.phase, tokens_of(batch.value(), 2)]
        *_, check = check_states(store.thread, load, CheckPlan(PROMPT, SETTINGS, 1, TOKENS), Event())
        found["check"] = [check.phase, check.result.outcome if check.result else check.message]
        stop, seen = Event(), 0
        long = Settings(strategy="autoregressive", max_new_tokens=900)
        for view in race_updates(store.thread, [load, load], PROMPT, [long, long], stop):
            seen = seen or len(view["rounds"])
            if seen:
                stop.set()
        found["stopped"] = [view["phase"], len(tokens_of(view, 0)) < 900]
        updates = race_updates(store.thread, [load, load], PROMPT, [long, long], Event())
        while not next(updates)["rounds"]:
            pass
        updates.close()
        gpu_time.SHORTEST = gpu_time.LONGEST = gpu_jobs.MARGIN_SECONDS + 2
        *_, view = race_updates(store.thread, [load, load], PROMPT, [long, long], Event())
        found["over"] = [view["phase"], len(tokens_of(view, 0)) < 900, view["message"]]
        gpu_time.SHORTEST = gpu_time.LONGEST = 120
    other = request_pair("builtin-target")
    with store.using(other) as load:
        *_, view = race_updates(store.thread, [load, load], PROMPT, [PLAIN, PLAIN], Event())
        found["other"] = [view["phase"], tokens_of(view, 0), load.place]
    with Tab(Page(url)) as tab:
        *_, view = tab.run(prompt=WRITING, max__tokens=16)
        found["page"] = [view["phase"], view["message"], tokens_of(view, 1)]
    page.close()
    print("FOUND " + json.dumps(found), flush=True)


if __name__ == "__main__":
    main()

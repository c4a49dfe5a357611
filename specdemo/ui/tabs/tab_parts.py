"""What tabs have in common: buttons that start and stop a job, its prompts, how far it is, and what it will do."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from html import escape
from itertools import zip_longest
from pathlib import Path
from typing import Any

import gradio as gr
from fastapi import Response

from specdemo.analysis.wording import counted
from specdemo.drafters import DRAFTERS
from specdemo.errors import PromptError, SettingsError, SpecDemoError
from specdemo.losslessness.certify import PROMPT
from specdemo.runs.prompts import LARGEST_FILE, MOST_PROMPTS, by_domain, prompt_lines, read_with_kinds
from specdemo.servers.catalog import label_of
from specdemo.settings import ACCEPTANCE_RULES, Settings
from specdemo.ui.jobs.job import WAITING, Job, JobState, Paces
from specdemo.ui.jobs.limits import limits
from specdemo.ui.jobs.losslessness import CheckJob
from specdemo.ui.jobs.measuring import MeasureJob
from specdemo.ui.jobs.queue import JobRunner, visitor_of
from specdemo.ui.jobs.session_recordings import RoundStreams
from specdemo.ui.panel.controls import UNQUEUED, UNSEEN, Controls, drawn_by
from specdemo.ui.state.request import PanelRequest, whole
from specdemo.ui.state.state import DOMAINS, OWN, PANEL, TABS, Measured, in_page_words
from specdemo.view.assets import fill
from specdemo.view.progress_text import duration

REFUSED = JobState("error", "This did not begin: the page’s lower edge says why.")
Updates = dict[Any, Any]
"""New values by component."""
Show = Callable[[Iterator[JobState], str], Iterator[Updates]]
"""What the page shows of a job's states, one update or more for each; also takes the visitor's session."""


@dataclass(frozen=True, slots=True)
class Start:
    """A button that starts a job."""

    button: gr.Button  # to press
    # makes the job of what the page asks for and the values of ``more``, or of these alone; raises SpecDemoError
    # where they cannot be run
    job: Callable[..., Job]
    show: Show  # shows it
    more: Sequence[Any] = ()  # components beside the controls that the job is made of
    of_page: bool = True  # whether the job is made of the controls at all
    of_visit: Callable[[Any, str], Job] = lambda job, session: job  # adds to a job what its visitor's session has
    # what else changes as it begins, for the visitor's session
    begin: Callable[[str], Updates] = lambda session: {}
    note: gr.HTML | None = None  # says before it starts what it will do


def connect(
    runner: JobRunner,
    controls: Controls,
    tab: str,
    starts: Sequence[Start],
    outputs: Sequence[Any],
    *,
    more: Sequence[Any] = (),
    end: Callable[[str], Updates] = lambda session: {},
) -> None:
    """Wire what starts something on a tab, and Stop, which is free while anything of the visitor runs.

    Args:
        runner: runs what is started.
        controls: have Stop and the signals, and collect the events after which the buttons are free again.
        tab: whose buttons they are; one job of each tab runs at a time.
        starts: the buttons that start something, and what.
        outputs: what the jobs are shown in; the first shows how far they are.
        more: further components that change as a job begins and ends.
        end: their new values as a job has ended, for a session.
    """
    signals, stop, inputs = controls.signals, controls.stop, controls.inputs(tab)
    free = [*(start.button for start in starts), stop, *more]

    def buttons_of(session: str) -> Updates:
        update = gr.update(interactive=not signals.running(session, tab))
        return {start.button: update for start in starts}

    def prepare(start: Start) -> Callable[[gr.Request], Updates]:
        def prepared(request: gr.Request) -> Updates:
            session = request.session_hash or ""
            signals.arm(session, tab)
            shown = next(start.show(iter([JobState("loading", WAITING)]), session))
            return {**shown, **buttons_of(session), stop: gr.update(interactive=True), **start.begin(session)}

        return prepared

    def execute(start: Start) -> Callable[..., Iterator[Updates]]:
        def states(request: gr.Request, values: Sequence[Any]) -> Generator[JobState]:
            try:
                page = [controls.request(values[: len(inputs)], tab)] if start.of_page else []
                job = start.job(*page, *values[len(inputs) :] if start.of_page else values)
                job = start.of_visit(job, request.session_hash or "")
            except SpecDemoError as error:
                yield JobState("error", str(error))
                return
            signal = signals.signal(request.session_hash or "", tab)
            yield from runner.run(job, visitor_of(request), signal)

        def executed(request: gr.Request, *values: Any) -> Iterator[Updates]:
            with closing(states(request, values)) as found:
                said = (replace(s, message=in_page_words(s.message)) if s.phase == "error" else s for s in found)
                yield from start.show(said, request.session_hash or "")

        return executed

    def refusal(start: Start) -> str:
        """Shows that a job did not begin, in the browser alone: the server may be out of reach."""
        shown = next(start.show(iter([REFUSED]), ""))
        return f"() => ({json.dumps([shown.get(c, gr.skip()) for c in outputs])})"

    def over(request: gr.Request) -> Updates:
        session = request.session_hash or ""
        signals.end(session, tab)
        return {**buttons_of(session), stop: gr.update(interactive=signals.running(session)), **end(session)}

    for start in starts:
        prepared = start.button.click(prepare(start), None, [*outputs, *free], trigger_mode="once", **UNQUEUED)
        # Jobs wait in queues of our own, which tell where one stands and hear Stop; Gradio's does neither.
        read = [*(inputs if start.of_page else ()), *start.more]
        done = prepared.then(execute(start), read, list(outputs), concurrency_limit=None, **UNSEEN)
        # What goes wrong in a job ends as a message of its own; this is an event that could not be sent or queued.
        # Gradio's ``then`` follows only on what went well.
        refused = done.failure(None, None, list(outputs), js=refusal(start), **UNQUEUED)
        controls.ended.extend(event.then(over, None, free, **UNQUEUED) for event in (done, refused))


CONNECT = """
const stage = window.SpecDemoStage.mount(element.querySelector(".race-root"));
const receive = () => stage.receive(props.value, server.fetch);
watch("value", receive);
receive();
"""


def create_stage(element: str, value: dict[str, Any] | None) -> tuple[gr.HTML, RoundStreams]:
    """Build the view of a race, or of a batch, in the current layout; it fetches the rounds that are offered."""
    streams = RoundStreams()

    def fetch(asked: list[Any]) -> Response:
        return streams.fetch(asked)

    return drawn_by(CONNECT, "race-root", value=value, server_functions=[fetch], elem_id=element), streams


def state_line(state: JobState) -> str:
    return fill("job-state.html", state=state)


def bounded(field: str, value: float | None, most: int, *, least: int = 1) -> int:
    """The whole number from ``least`` to ``most``; else raises SettingsError with the field."""
    number = whole(field, value)
    if not isinstance(number, int) or not least <= number <= most:
        raise SettingsError(field, f"must be a whole number from {least} to {most:,}, not {number!r:.80}.")
    return number


def check_length(settings: Settings) -> None:
    """Raises SettingsError for a length that cannot be measured: the first token is the prefill's."""
    bounded("length", settings.max_new_tokens, limits().tokens, least=2)


SHOW_SOURCE = """
(source) => ["domains", "own"].map((name) => ({ __type__: "update", visible: source === name }))
"""


def create_prompt_source(controls: Controls, tab: str) -> gr.File:
    """Build the choice of a tab in the current layout; returns what is no part of the page's state."""
    source = controls.build(f"{tab}.prompts", gr.Radio)
    domains = controls.build(f"{tab}.domains", gr.CheckboxGroup, visible=source.value == DOMAINS)
    with gr.Row(visible=source.value == OWN, elem_classes="own-prompts") as own:
        label = "One prompt a line; longer ones with a blank line or --- between them. Or a file: .txt, .jsonl"
        controls.build(f"{tab}.own", gr.Textbox, label=label, lines=5, max_lines=12, scale=2)
        file = gr.File(
            label=f"File, up to {LARGEST_FILE // 10**6} MB",
            file_types=[".txt", ".jsonl"],
            height=150,
            elem_id=f"{tab}-file",
        )
    source.change(None, source, [domains, own], js=SHOW_SOURCE, **UNQUEUED)
    return file


def chosen_prompts(
    panel_prompt: str, tab: Measured, file: str | None, *, mixed: bool = False
) -> list[tuple[str, str]]:
    """The prompts in the order of the page, each with its domain or the kind that a file names.

    With ``mixed`` the domains take turns, so that the first few are of all. Raises PromptError where none is.
    """
    if tab.prompts == PANEL:
        return [(panel_prompt, "")]
    if tab.prompts == DOMAINS:
        grouped = [[(e.prompt, e.domain) for e in by_domain().get(name, [])] for name in tab.domains or []]
        turns = zip_longest(*grouped) if mixed else grouped
        found = [each for group in turns for each in group if each is not None]
        if not found:
            raise PromptError("no domain is chosen; tick at least one.")
        return found
    typed = [(line, "") for line in prompt_lines(tab.own)] if tab.own and tab.own.strip() else []
    uploaded = read_with_kinds(Path(file)) if file else []
    if not typed and not uploaded:
        raise PromptError("there is none; write one, or choose a file.")
    if len(typed) + len(uploaded) > MOST_PROMPTS:
        raise PromptError(f"there are {len(typed) + len(uploaded):,} in all; give at most {MOST_PROMPTS:,}.")
    return [*typed, *uploaded]


def announce(
    controls: Controls,
    starts: Sequence[Start],
    paces: Paces,
    view: gr.HTML,
    idle: Callable[[PanelRequest, str], Any],
) -> None:
    """Keep the page saying what its buttons would do, by one event and one look at the page for every change.

    ``idle`` is the race's value before there is a race, by request and session.
    """
    read = controls.inputs(*TABS)
    files = [file for start in starts for file in start.more]  # with prompts
    notes: list[Any] = [controls.note, *(start.note for start in starts)]

    def say(request: gr.Request, *sent: Any) -> list[Any]:
        found, texts = said(sent)
        return [gr.skip() if found is None else idle(found, request.session_hash or ""), *texts]

    def said(sent: Sequence[Any]) -> tuple[PanelRequest | None, list[Any]]:
        values = [_as_sent(component, value) for component, value in zip(read, sent, strict=False)]
        given = {file for file, value in zip(files, sent[len(read) :], strict=True) if value}
        try:
            found = controls.request(values, *TABS)
        except SpecDemoError as error:
            return None, [_refused(error)] * len(notes)
        plans = (_note(start, found, not given.isdisjoint(start.more), paces) for start in starts)
        return found, ["", *plans]

    # Values are taken as they are sent: while another pair changes a lane's choices, its method may not be one of
    # them, which Gradio would answer with an error.
    raw: dict[str, Any] = {**UNQUEUED, "preprocess": False}
    # links.js presses it once for changes that come together; a text is taken when it is left.
    look = gr.Button(visible="hidden", elem_id="panel-look")
    left = [c.blur for c in read if isinstance(c, gr.Textbox)]
    events = [look.click, *left, *(file.change for file in files)]
    gr.on(events, say, [*read, *files], [view, *notes], trigger_mode="always_last", **raw)
    for note, text in zip(notes, said([c.value for c in (*read, *files)])[1], strict=True):
        note.value = text


def _as_sent(component: gr.components.Component, value: Any) -> Any:
    """A value as the plan may read it."""
    if isinstance(component, gr.Textbox):
        return value if isinstance(value, str) else ""
    if isinstance(component, gr.Dropdown):
        return f"{value}"
    if isinstance(component, gr.Radio | gr.CheckboxGroup):
        choices = [name for _, name in component.choices]
        if isinstance(component, gr.Radio):
            return value if isinstance(value, str) and value in choices else choices[0]
        return [name for name in value if name in choices] if isinstance(value, list) else []
    return value


def _note(start: Start, request: PanelRequest, has_file: bool, paces: Paces) -> str:
    if has_file:
        return "<p>The prompts of a file are counted when it starts.</p>"
    try:
        job: Any = start.job(request)
        text = plan(request, job)
    except SpecDemoError as error:
        return _refused(error)
    return f"<p>{escape(text)} {escape(_time(job, paces))}</p>"


def _refused(error: SpecDemoError) -> str:
    return f'<p class="refused">{escape(in_page_words(str(error)))}</p>'


def _time(job: Job, paces: Paces) -> str:
    if isinstance(job, MeasureJob) and job.budget is not None:  # which the sentence says
        return ""
    pair = job.pairs[0]
    seconds = None if pair is None else paces.seconds(pair.name, job.work)
    if seconds is None:
        return "How long they take is known once they have begun."
    most = limits().seconds
    over = "" if most is None or seconds < most else f" A job here may take {most:.0f} s; the rest is left out."
    return f"They take about {duration(seconds)}.{over}"


def plan(request: PanelRequest, job: MeasureJob | CheckJob) -> str:
    """What a job would run, and from which lane of the panel it takes its settings."""
    settings, work, lane = job.lane.settings, job.work, request.drafting_lane()
    if isinstance(job, MeasureJob) and job.budget is not None:
        rule, prompts = ACCEPTANCE_RULES[settings.acceptance], counted(len(job.prompts), "prompt")
        return f"Tries every method on {prompts}, {rule}, for about {job.budget:g}\u00a0s."
    warmth = "greedy" if settings.greedy else f"temperature {settings.temperature:g}"
    if settings.server is not None:
        how = f"Measures {label_of(settings.server)} as it was started, {warmth}: its γ is its own."
    elif isinstance(job, CheckJob):
        how = f"γ {settings.gamma} is lane {lane.number}’s."
    else:
        drafter, own = DRAFTERS[settings.drafter].label, DRAFTERS[lane.settings.drafter].label
        drafter += "" if drafter == own else f" ({own} has no batch)"
        rule = ACCEPTANCE_RULES[settings.acceptance]
        how = f"Drafts as lane {lane.number} of the panel does: {drafter}, {rule}, {warmth}."
    sizes = ", ".join(map(str, job.sizes)) if isinstance(job, MeasureJob) else ""
    load = isinstance(job, MeasureJob) and job.is_load
    each = [(w.times * (w.rows if load else 1), w.settings.strategy == "autoregressive") for w in work]
    plain = sum(times for times, is_plain in each if is_plain)
    made = counted(sum(times for times, _ in each), "request" if load else "run")
    made += f" by {sizes} users" if load else f" of {sizes} rows" * bool(sizes)
    made += f" of at most {counted(work[-1].settings.max_new_tokens, 'token')}"
    story = f" They continue “{PROMPT}”, unless you choose a prompt." if [*job.prompts] == [PROMPT] else ""
    return f"{how} {made}{f', {plain:,} of them plain' * bool(plain)}.{story}"

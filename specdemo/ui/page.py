"""The page: composes the side panel and the tabs, nothing more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr
from starlette.middleware import Middleware

from specdemo.models.request import ASSETS, is_public, is_zero_gpu
from specdemo.runs.store import PairStore
from specdemo.runs.zero_gpu import ZeroGpuStore
from specdemo.servers.catalog import servers
from specdemo.ui.api.addresses import Addresses, own_hosts, trust_proxies
from specdemo.ui.api.endpoints import add_endpoints
from specdemo.ui.api.gate import KEPT_SECONDS, Gate
from specdemo.ui.api.guarded import HANDLERS, GuardedBlocks, close_private
from specdemo.ui.api.visitors import Visitors
from specdemo.ui.jobs.job import Paces
from specdemo.ui.jobs.limits import limits
from specdemo.ui.jobs.queue import JobQueue, JobRunner
from specdemo.ui.links import connect_links, link_head
from specdemo.ui.panel.controls import Controls
from specdemo.ui.panel.pair_card import PairLoading, connect_pair_card
from specdemo.ui.panel.panel import connect_couplings, create_panel
from specdemo.ui.state.request import pair_request
from specdemo.ui.state.state import PageState
from specdemo.ui.tabs.batch import create_batch_tab
from specdemo.ui.tabs.examples import learn_example
from specdemo.ui.tabs.losslessness import create_losslessness_tab
from specdemo.ui.tabs.race import create_race_tab, race_head
from specdemo.ui.tabs.sweep import create_sweep_tab
from specdemo.ui.tabs.tab_parts import announce
from specdemo.view.assets import race_css

TITLE = "specdemo: speculative decoding, measured"
SESSIONS = 1024
"""Visitors of whom Gradio keeps how their components are; it makes room for 10,000 if nothing is said."""
LOOKED_THROUGH_SECONDS = 600
"""How often files of visitors are looked through for old ones."""
EVENTS = 100
"""Events that wait to begin. Jobs wait in queues of our own, so this fills only by a flood."""
STATUS_SECONDS = 10.0
"""How often Gradio tells who waits for an event to begin, all of them at once; else it does after each event."""
THREADS = 64
"""Everyone who waits for a turn takes one for a tenth of a second at a time; pressing a button needs one too."""


def build(store: PairStore | None = None, queue: JobQueue | None = None) -> gr.Blocks:
    """The whole app; loading the builtin pair begins at once, in the background (on ZeroGPU: before the launch).

    Raises:
        SpecDemoError: the configured servers, or the trusted proxies, cannot be read.
    """
    trust_proxies()
    servers()  # what cannot be read is said before anything is built
    store = store or (ZeroGpuStore() if is_zero_gpu() else PairStore())
    loading = PairLoading(store)
    paces = Paces()
    learn_example(paces)
    runner = JobRunner(store, queue or JobQueue(limits(), shared=is_public()))
    with GuardedBlocks(
        title=TITLE,
        analytics_enabled=False,
        fill_width=True,
        delete_cache=(LOOKED_THROUGH_SECONDS, int(KEPT_SECONDS)),
    ) as page:
        with gr.Row(elem_id="page"):
            with gr.Column(scale=0, min_width=300, elem_id="panel"):
                gr.HTML(
                    "<h1>Speculative decoding</h1><p>side by side, measured, token by token</p>",
                    elem_id="title",
                    padding=False,
                )
                controls = Controls()
                create_panel(controls)
            with gr.Tabs(elem_id="stage") as tabs:
                with gr.Tab("Race", id="race"):
                    recordings, view, idle = create_race_tab(controls, runner, loading, paces)
                with gr.Tab("Which setting?", id="sweep"):
                    starts = [create_sweep_tab(controls, runner)]
                with gr.Tab("Batch", id="batch"):
                    starts.append(create_batch_tab(controls, runner))
                with gr.Tab("Losslessness", id="losslessness"):
                    starts.append(create_losslessness_tab(controls, runner))
        announce(controls, starts, paces, view, idle)
        add_endpoints(runner)
        connect_couplings(controls)
        connect_pair_card(page, controls, loading)
        connect_links(page, controls, tabs, store)

        def leave(request: gr.Request) -> None:
            visitors.forget(request.session_hash or "")

        page.unload(leave)
    # Not past the queue: a call there runs to its first message, and then nobody goes on with it.
    page.queue(max_size=EVENTS, api_open=False, status_update_rate=STATUS_SECONDS)
    visitors = Visitors(page, [controls.signals, recordings, loading], limits())
    close_private(page)
    store.preload(pair_request(PageState()))
    return page


def launch_options() -> dict[str, Any]:
    """How the page is launched: theme, styles and scripts belong to the launch in Gradio 6."""
    most = limits()
    page, talk = ((Path(__file__).parent / "web" / name).read_text("utf-8") for name in ("page.css", "talk.css"))
    # Styles go into the head as they are: what is passed as ``css`` is rewritten and loses container queries.
    return {
        "theme": theme(),
        "head": f"<style>{page}{race_css()}{talk}</style>{race_head()}{link_head()}",
        "footer_links": [],
        "favicon_path": ASSETS / "icon.svg",
        "pwa": True,
        "state_session_capacity": SESSIONS,
        "run_history": False,  # a view is large, and every update of every visitor would be recorded
        "show_error": not is_public(),  # of what nobody foresaw; what we say ourselves is always shown
        "max_file_size": most.upload,
        "max_threads": THREADS,
        "mcp_server": True,
        "app_kwargs": {
            "exception_handlers": HANDLERS,
            "middleware": [
                Middleware(Addresses, hosts=own_hosts()),
                Middleware(Gate, limits=most, shared=is_public()),
            ],
        },
    }


def theme() -> gr.themes.Base:
    """System fonts (nothing is fetched from elsewhere) and the colours of race.css, which know light from dark."""
    sans = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif")
    mono = ("ui-monospace", "SFMono-Regular", "Menlo", "monospace")
    uses = {
        "transparent": ("block_background_fill", "block_label_background_fill"),
        "light-dark(#3d32bd, #bdb7ff)": ("button_primary_background_fill_hover",),
        "var(--race-ink)": ("body_text_color",),
        "var(--race-dim)": ("block_info_text_color", "block_label_text_color", "block_title_text_color"),
        "var(--race-card)": ("body_background_fill", "button_primary_text_color"),
        "var(--race-panel)": ("input_background_fill", "button_secondary_background_fill"),
        "var(--race-line)": ("input_border_color", "border_color_primary", "button_secondary_border_color"),
        "var(--race-hero)": (
            "slider_color",
            "button_primary_background_fill",
            "checkbox_background_color_selected",
        ),
    }
    colours = {name + mode: c for c, names in uses.items() for name in names for mode in ("", "_dark")}
    return gr.themes.Base(font=sans, font_mono=mono, radius_size="md", spacing_size="sm", text_size="md").set(
        **colours,
        block_border_width="0px",
        block_title_text_size="13px",
        block_label_text_size="13px",
        block_info_text_size="13px",
        block_title_text_weight="400",
        block_padding="0px",
    )

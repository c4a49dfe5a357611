"""The page's controls, built from the fields of its state, and read back into it; and options of their events."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import gradio as gr
from gradio.components import FormComponent
from gradio.events import Dependency

from specdemo.ui.jobs.worker import StopSignals
from specdemo.ui.state.couplings import choices_left, nearest_offered
from specdemo.ui.state.methods import find_method
from specdemo.ui.state.request import PanelRequest, panel_request
from specdemo.ui.state.state import METHOD_PARAMETERS, TABS, PageState, PairChoice, parameters

Kind = TypeVar("Kind", bound=FormComponent)
UNSEEN: dict[str, Any] = {"show_progress": "hidden", "show_progress_on": [], "api_visibility": "private"}
"""No spinner over what is updated, and no endpoint of the public API.

With every message of any event Gradio passes its status to all components that ever showed one, hidden or not, and
copies their values for that: for this page's controls it took half of the browser's time in a run. So none does.
"""

UNQUEUED: dict[str, Any] = {"queue": False, **UNSEEN}  # moreover without waiting behind events that compute


METHODS = {f"lane{number}-method" for number in range(1, 5)}
_judged = gr.Dropdown.preprocess


def _read(component: gr.Dropdown, payload: Any) -> Any:
    """Of a pair named a moment before Run the page may not have the methods yet. Gradio would refuse what it has
    in words of its own; ``request`` judges it. Of the class, since a list with new choices is a new component.
    """
    return payload if component.elem_id in METHODS else _judged(component, payload)


gr.Dropdown.preprocess = _read  # type: ignore[method-assign, assignment]


class Controls:
    """The page's controls by the names of their parameters, and what else the panel holds."""

    card: tuple[gr.HTML, gr.Button, gr.Button]  # says what the pair is; the buttons Load and Stop loading
    wished: gr.State  # the method that was last wished for each lane
    note: gr.HTML  # says what is wrong in the panel
    starts: dict[str, gr.Button]  # the button of each tab that starts it
    stop: gr.Button  # ends everything that its visitor runs, on whichever tab it was started

    def __init__(self) -> None:
        self.signals = StopSignals()
        self.ended: list[Dependency] = []  # events after which a job of any tab is over; the tabs add theirs
        self._fields = {each.name: each for each in parameters()}
        self._built: dict[str, Any] = {}

    def build(self, name: str, kind: type[Kind], **look: Any) -> Kind:
        """A parameter's control, in the current layout; ``look`` is what its field does not say."""
        field = self._fields[name]
        given: dict[str, Any] = {"label": field.label, "value": field.default, "elem_id": field.element}
        if issubclass(kind, gr.Slider):  # a button that resets it stands in no relation to its use
            given |= {"minimum": field.least, "maximum": field.most, "step": 1, "buttons": []}
        elif field.choices:
            left = choices_left(name, {each.name: each.default for each in self._fields.values()})
            given["choices"] = left or [(label, value) for value, label in field.choices.items()]
        self._built[name] = component = kind(**given | look)
        return component

    def __getitem__(self, name: str) -> Any:
        return self._built[name]

    def named(self, names: Iterable[str]) -> list[Any]:
        return [self._built[name] for name in names]

    @property
    def methods(self) -> list[Any]:
        return self.named(METHOD_PARAMETERS)

    def all(self) -> dict[str, Any]:
        return {name: self._built[name] for name in self._fields if name in self._built}

    def pair(self) -> list[Any]:
        return self.named(self._of(PairChoice.model_fields))

    def inputs(self, *tabs: str) -> list[Any]:
        """Those of the panel and of some tabs, which their runs read."""
        return self.named(self._panel(tabs))

    def request(self, values: Sequence[Any], *tabs: str) -> PanelRequest:
        """What the values of ``inputs(*tabs)`` ask for; as :func:`specdemo.ui.state.request.panel_request`.

        Methods are those that the pair offers, as the page shows a moment after a pair was named.
        """
        given = dict(zip(self._panel(tabs), values, strict=True))
        offered = nearest_offered(given)
        known = {name: offered[name] for name in METHOD_PARAMETERS if find_method(given.get(name))}
        return panel_request(PageState.of(given | known))

    def choice(self, values: Sequence[Any]) -> PageState:
        return PageState.of(dict(zip(self._of(PairChoice.model_fields), values, strict=True)))

    def _of(self, fields: Collection[str]) -> list[str]:
        return [name for name, each in self._fields.items() if each.path[0] in fields]

    def _panel(self, tabs: Collection[str]) -> list[str]:
        others = set(TABS) - set(tabs)
        return [n for n, each in self._fields.items() if each.element and each.path[0] not in others]


def drawn_by(script: str, root: str, **look: Any) -> gr.HTML:
    """A component that a script draws, in an element of the class ``root``."""
    template = f'<div class="{root}"></div>'
    return gr.HTML(html_template=template, js_on_load=script, apply_default_css=False, padding=False, **look)


def updates(names: Iterable[str], values: Mapping[str, Any]) -> list[Any]:
    """Updates of controls, by parameter, to these values of the page, with the choices that they leave."""
    left = {name: choices_left(name, values) for name in names}
    return [
        values[name] if choices is None else gr.update(choices=choices, value=values[name])
        for name, choices in left.items()
    ]

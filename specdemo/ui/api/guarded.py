"""What no page of ours sends is answered in a sentence, where Gradio's own code would stumble or answer."""

from __future__ import annotations

import logging
from typing import Any

import gradio as gr
from fastapi.exceptions import RequestValidationError
from gradio.route_utils import FnIndexInferError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

from specdemo.ui.api.gate import NOT_OURS

TAKEN = {
    "pairs": "nothing in it",
    "run": "prompt, and, where you like, settings, pair and rounds",
    "race": "prompt, and, where you like, lanes, pair and rounds",
    "advise": "prompts, and, where you like, budget_seconds, methods, kinds, settings, pair and rounds",
    "sweep": "prompts, and, where you like, gammas, repeats, settings, pair and rounds",
}
"""What each endpoint takes."""
NO_ENDPOINT = f"There is no endpoint of this name, only {', '.join(list(TAKEN)[:-1])} and {list(TAKEN)[-1]}."
UNREADABLE = "A value was sent that this page cannot read. Reload the page and try again."
LONGEST_MESSAGE = 200
_log = logging.getLogger(__name__)


class GuardedBlocks(gr.Blocks):
    """Blocks that tell whoever sends values of other kinds than the page does."""

    async def preprocess_data(self, block_fn: Any, inputs: list[Any], *args: Any, **kwargs: Any) -> list[Any]:
        """As in Gradio; a call of an endpoint may leave out its last values, and other kinds are refused."""
        if block_fn.api_visibility == "public":
            inputs = [*inputs, *(c.value for c in block_fn.inputs[len(inputs) :])]
        if block_fn.preprocess and any(map(_no_choice, block_fn.inputs, inputs)):
            raise gr.Error(UNREADABLE, print_exception=False)
        try:
            return await super().preprocess_data(block_fn, inputs, *args, **kwargs)
        except gr.Error as error:  # quotes what was sent, which may be half a character that no answer can hold
            sendable = error.message.encode("utf-8", "replace").decode("utf-8")
            raise gr.Error(sendable[:LONGEST_MESSAGE], print_exception=False) from None
        except Exception as error:
            raise gr.Error(UNREADABLE, print_exception=False) from error


def _no_choice(component: Any, value: Any) -> bool:
    """Whether a control with choices is sent what no page sends: Gradio takes nothing, and an empty list."""
    single = isinstance(component, gr.Radio) or (isinstance(component, gr.Dropdown) and not component.multiselect)
    return single and not isinstance(value, str)


def close_private(page: gr.Blocks) -> None:
    """Private events answer to no name: Gradio only leaves them out of its list."""
    for event in page.fns.values():
        if event.api_visibility == "private":
            event.api_name = None


async def _refused(request: Request, error: Any) -> JSONResponse:
    """As FastAPI's own answers, which may repeat a whole address, or a body of another shape."""
    if isinstance(error, RequestValidationError):
        return JSONResponse({"detail": NOT_OURS}, 422)
    detail = f"{error.detail!s:.{LONGEST_MESSAGE}}"
    return JSONResponse({"detail": detail}, error.status_code, getattr(error, "headers", None))


async def _failed(request: Request, error: Exception) -> JSONResponse:
    """A call whose object names what there is not, or lacks what must be there; or what no route foresaw."""
    by_name, endpoint = "/call/v2/" in request.url.path, request.url.path.rstrip("/").rpartition("/")[2]
    if isinstance(error, FnIndexInferError) or (by_name and endpoint not in TAKEN):
        return JSONResponse({"detail": NO_ENDPOINT}, 404)
    if by_name:
        return JSONResponse({"detail": f"Give a JSON object with {TAKEN[endpoint]}."}, 422)
    # The trace stays in the server's own log. Starlette logs none of an error that is named below.
    _log.error("a request failed", exc_info=error)
    return JSONResponse({"detail": NOT_OURS}, status_code=500)


HANDLERS: dict[type[Exception], Any] = {
    **dict.fromkeys((HTTPException, RequestValidationError), _refused),
    **dict.fromkeys((FnIndexInferError, KeyError, TypeError, ValueError, Exception), _failed),
}
"""For the server's routes, by what they raised."""

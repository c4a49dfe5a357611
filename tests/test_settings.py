"""Every knob: what is out of range is refused at once, by name, with what to do."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from toys import endless_pair, prompt_ids

import specdemo
from specdemo import Settings, SettingsError, SpecDemoError
from specdemo.settings import whole_numbers

NAN, INF = math.nan, math.inf

BAD = {
    "strategy": ("speculativ", "", None, 1),
    "drafter": (
        "oracle",
        None,
        "model,suffix",
        "suffix,suffix",
        "suffix,oracle",
        "suffix,",
        "suffix,prompt_lookup,model",
    ),
    "acceptance": ("exactly", None),
    "gamma": (0, -1, 17, 2.5, 5.0, True, "5", NAN, INF, None, np.float64(5), np.True_),
    "temperature": (
        10**310,
        np.float32(NAN),
        np.True_,
        -1,
        -0.001,
        1e-30,
        1e-5,
        INF,
        -INF,
        NAN,
        "0.7",
        True,
        None,
    ),
    "top_k": (-1, 1.5, True, "3", NAN, None, 2**53, 10**30),
    "top_p": (0, 0.0, -0.1, 1.0001, NAN, INF, "1", True, None),
    "repetition_penalty": (0, -1.0, 1e-300, 0.009, 101, NAN, INF, "1", True, None),
    "max_new_tokens": (0, -1, 1.5, True, "8", NAN, None, 2**64),
    "seed": (-1, 0.5, True, "0", 2**63, None),
    "accept_top_k": (0, -1, 1.5, True, "1", None, 2**70),
    "exit_layer": (0, True, 2**63),
    "lookup_ngram": (0, 9, 2**70, NAN),
    "chat": (0, 1, "yes", ""),
    "adaptive_gamma": (1,),
    "earlier_outputs": (0, None),
    "p_min": (-0.1, 1.01, NAN, "0.5", True, None),
    "server": (1, "", "not asked by the engine"),
}


@pytest.mark.parametrize(("field", "value"), [(field, v) for field, values in BAD.items() for v in values])
def test_a_bad_value_is_refused_by_name(field: str, value: object) -> None:
    """Guards against a bad knob that surfaces as a shape error deep in a model, or is silently taken."""
    with pytest.raises(SettingsError) as caught:
        Settings(**{field: value})
    assert caught.value.field == field
    assert isinstance(caught.value, SpecDemoError)
    message = str(caught.value)
    assert message.startswith(f"{field}: ")
    assert repr(value)[:80] in message
    assert message.endswith(".")


GOOD = {
    "gamma": (1, 16),
    "temperature": (0, 0.0, 1, 100),
    "top_k": (0, 1, 10**6),
    "top_p": (1, 1.0, 0.01),
    "repetition_penalty": (0.01, 0.5, 1, 2.0, 100),
    "max_new_tokens": (1, 10**6, 2**53 - 1),
    "accept_top_k": (1, 2**53 - 1),
    "seed": (0, 2**63 - 1),
    "chat": (True, False, None),
    "drafter": ("suffix,model", "prompt_lookup,eagle3", "suffix,prompt_lookup"),
    "p_min": (0, 1.0),
}


@pytest.mark.parametrize(("field", "value"), [(field, v) for field, values in GOOD.items() for v in values])
def test_values_at_the_edge_are_taken(field: str, value: object) -> None:
    """Guards against limits that are off by one."""
    assert getattr(Settings(**{"acceptance": "sampling", field: value}), field) == value


def test_the_defaults_are_those_of_the_public_api() -> None:
    """Guards the documented defaults, which notebooks rely on."""
    names = Settings("speculative", "model", acceptance="exact", gamma=5, temperature=0.0, chat=None, seed=0)
    assert Settings() == dataclasses.replace(
        names, top_k=0, top_p=1.0, repetition_penalty=1.0, max_new_tokens=128, accept_top_k=10
    )


def test_exact_needs_temperature_zero() -> None:
    """Guards losslessness: comparing with the best token while sampling would change the distribution."""
    with pytest.raises(SettingsError, match="sampling") as caught:
        Settings(acceptance="exact", temperature=0.7)
    assert caught.value.field == "acceptance"
    assert Settings(strategy="autoregressive", temperature=0.7).lossless, "a baseline has no rule"
    assert Settings(acceptance="top_k", strategy="autoregressive").lossless
    assert Settings(acceptance="sampling", temperature=1.0).lossless
    assert not Settings(acceptance="top_k").lossless


def test_numbers_are_kept_as_pythons_own_of_the_documented_type() -> None:
    """Guards ``np.arange(2, 9)``, recordings, which JSON has to hold, and libraries that refuse 2 for 2.0."""
    given = {"gamma": np.int64(3), "seed": np.uint8(7), "temperature": 2, "top_p": 1, "repetition_penalty": 2}
    settings = Settings(acceptance="sampling", max_new_tokens=4, **given)
    assert {name: getattr(settings, name) for name in given} == given
    assert [type(getattr(settings, name)) for name in given] == [int, int, float, float, float]
    assert len(specdemo.run(endless_pair("llama"), prompt_ids(4), settings).token_ids) == 4


@pytest.mark.parametrize("values", [[np.True_], np.array(2.5), [torch.tensor(2.5)], [10**5000], [1, NAN], 2**70])
def test_lists_of_whole_numbers_are_checked_like_settings(values: object) -> None:
    """Guards against TypeErrors of other libraries, and numbers that Python does not even write."""
    with pytest.raises(SettingsError, match="gammas: must be"):
        whole_numbers("gammas", values, None, "[2, 3]")


def test_a_message_quotes_no_more_than_fits_a_line_or_two() -> None:
    """What was given may be a novel; what to do still stands at the end."""
    for novel in ("9" * 100_000, 10**5000):
        with pytest.raises(SettingsError) as caught:
            Settings(gamma=novel)
        assert len(str(caught.value)) <= 400
        assert str(caught.value).startswith("gamma: must be a whole number from 1 to 16")

"""specdemo: see, measure and believe speculative decoding of language models."""

from specdemo.analysis.metrics import Metrics
from specdemo.errors import LoadCancelled, PairError, PromptError, SettingsError, SpecDemoError, TraceError
from specdemo.lanes import run, stream
from specdemo.models.loading import load_pair
from specdemo.models.pair import ModelPair
from specdemo.models.preflight import Preflight, preflight
from specdemo.race import race
from specdemo.settings import Settings
from specdemo.trace import Candidate, Round, Token, Trace

__all__ = [
    "Candidate",
    "LoadCancelled",
    "Metrics",
    "ModelPair",
    "PairError",
    "Preflight",
    "PromptError",
    "Round",
    "Settings",
    "SettingsError",
    "SpecDemoError",
    "Token",
    "Trace",
    "TraceError",
    "load_pair",
    "preflight",
    "race",
    "run",
    "stream",
]

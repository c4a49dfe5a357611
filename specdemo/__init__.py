"""specdemo: see, measure and believe speculative decoding of language models."""

from specdemo.analysis.metrics import Metrics
from specdemo.errors import PairError, PromptError, SettingsError, SpecDemoError, TraceError
from specdemo.lanes import run, stream
from specdemo.models.loading import load_pair
from specdemo.models.pair import ModelPair
from specdemo.race import race
from specdemo.settings import Settings
from specdemo.trace import Candidate, Round, Token, Trace

__all__ = [
    "Candidate",
    "Metrics",
    "ModelPair",
    "PairError",
    "PromptError",
    "Round",
    "Settings",
    "SettingsError",
    "SpecDemoError",
    "Token",
    "Trace",
    "TraceError",
    "load_pair",
    "race",
    "run",
    "stream",
]

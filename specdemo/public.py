"""Every public name of the package; ``import specdemo`` has them all."""

# ruff: noqa: F401  # what is imported here is public

from specdemo.analysis.advice import AdviceReport
from specdemo.analysis.batch_metrics import BatchMetrics, measure_batch
from specdemo.analysis.batch_sizes import LoadReport, SizeReport
from specdemo.analysis.speedup import speedup_over_repeats
from specdemo.analysis.sweep_report import SweepReport
from specdemo.errors import (
    LoadCancelled,
    MemoryShortage,
    PairError,
    PromptError,
    ServerError,
    SettingsError,
    SpecDemoError,
    TraceError,
)
from specdemo.losslessness.certificate import Certificate
from specdemo.losslessness.certify import certify, stream_certificate
from specdemo.losslessness.deployment_check import DeploymentCheck
from specdemo.losslessness.deployments import compare_deployments
from specdemo.losslessness.greedy_check import GreedyCheck, check_greedy
from specdemo.metrics import Metrics
from specdemo.models.eagle3_head import Eagle3Head
from specdemo.models.mtp_head import MtpHead
from specdemo.models.pair import ModelPair
from specdemo.models.preflight import Preflight, preflight
from specdemo.recording import Recording
from specdemo.rounds import Round, Token
from specdemo.runs.advise import advise, stream_advice
from specdemo.runs.batch import run_batch, stream_batch
from specdemo.runs.batch_sizes import batch_sizes, stream_batch_sizes
from specdemo.runs.load import load_pair
from specdemo.runs.load_test import load_test, stream_load_test
from specdemo.runs.race import race, repeat_race
from specdemo.runs.single import run, stream
from specdemo.runs.sweep import stream_sweep, sweep
from specdemo.runs.threads import quickest_threads
from specdemo.servers.gguf import GgufPair
from specdemo.servers.pair import ServerPair
from specdemo.settings import Settings
from specdemo.trace import Trace
from specdemo.view.export import export_html, rounds_csv, tokens_csv

__all__ = [name for name in globals() if not name.startswith("_")]

"""A setting as the lines that set it in the engines people run.

The options are those of transformers 5.23 (``GenerationConfig``), of vLLM's ``--speculative-config``
(docs.vllm.ai, features/speculative_decoding), of SGLang's server arguments (docs.sglang.io,
advanced_features/speculative_decoding) and of ``llama-server --help``.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path

from jinja2 import Environment, FileSystemLoader

from specdemo.drafters import DRAFTERS
from specdemo.errors import SettingsError
from specdemo.settings import LOSSY_RULES, MAX_LOOKUP_NGRAM, Settings

FRAMEWORKS = {"transformers": "transformers", "vllm": "vLLM", "sglang": "SGLang", "llama.cpp": "llama.cpp"}
"""What can be asked for, and what people call it."""
DRAFTING = {
    "model": {
        "transformers": "assistant_model=draft",
        "vllm": '{{"method": "draft_model", "model": {draft}, "num_speculative_tokens": {gamma}}}',
        "sglang": "--speculative-algorithm STANDALONE --speculative-draft-model-path {draft} \\\n"
        "  --speculative-num-steps {gamma} --speculative-eagle-topk 1 --speculative-num-draft-tokens {rows}",
    },
    "prompt_lookup": {
        "transformers": "prompt_lookup_num_tokens={gamma},\n    max_matching_ngram_size={lookup_ngram}",
        "vllm": '{{"method": "ngram", "num_speculative_tokens": {gamma}, "prompt_lookup_max": {lookup_ngram}, '
        '"prompt_lookup_min": 1}}',
        "sglang": "--speculative-algorithm NGRAM --speculative-num-draft-tokens {rows}",
    },
    "suffix": {
        "vllm": '{{"method": "suffix", "num_speculative_tokens": {gamma}, "suffix_decoding_max_cached_requests": '
        '{earlier_outputs}, "suffix_decoding_min_token_prob": {p_min}}}',
    },
    "early_exit": {"transformers": "assistant_early_exit={exit_layer}"},
    "eagle3": {
        "vllm": '{{"method": "eagle3", "model": {head}, "num_speculative_tokens": {gamma}}}',
        "sglang": "--speculative-algorithm EAGLE3 --speculative-draft-model-path {head} \\\n"
        "  --speculative-num-steps {gamma} --speculative-eagle-topk 1 --speculative-num-draft-tokens {rows}",
    },
    "mtp": {
        "vllm": '{{"method": "mtp", "num_speculative_tokens": {gamma}}}',
        "sglang": "--speculative-algorithm NEXTN \\\n"
        "  --speculative-num-steps {gamma} --speculative-eagle-topk 1 --speculative-num-draft-tokens {rows}",
    },
}
"""How engines are told to draft so, by drafter; what stands in no row cannot be had there.
llama.cpp's flags stand with the drafters."""
VLLM_LEAST, VLLM_CACHED = 0.1, 10_000
"""Its own least probability of suffix decoding, and outputs of requests that it copies from."""
BUILTIN = "assets/builtin/target"
COMMANDS = {
    "vllm": "vllm serve",
    "sglang": "python -m sglang.launch_server --model-path",
    "llama.cpp": "llama-server -m",
}
GGUF = "llama.cpp's convert_hf_to_gguf.py makes a .gguf file of a model's folder (--outfile names it)."
GGUF_OF_BUILTIN = "python -m specdemo.training.gguf . writes these files of the builtin pair."
SCRIPT = Environment(
    loader=FileSystemLoader(Path(__file__).parent), trim_blocks=True, keep_trailing_newline=True
).get_template("transformers_script.jinja")
"""A program that runs as it is."""
UNKNOWN = {"target": "TARGET", "draft": "DRAFT", "head": "HEAD"}
"""What stands for a model that was not loaded by a name."""


def engine_lines(
    engine: str,
    settings: Settings,
    models: Mapping[str, str],
    dtype: str = "auto",
    fixed_gamma: int | None = None,
    weights: Mapping[str, str | None] | None = None,
) -> str:
    """The lines, or a comment that says why there are none.

    Args:
        engine: a key of ``FRAMEWORKS``.
        settings: what to set.
        models: names or folders of the models by role; a draft's tokenizer only where it is not the target's.
        dtype: of the weights, as torch calls it.
        fixed_gamma: the fastest of those measured, which stands for an adaptive γ and for a tree.
        weights: how they were quantised, by role.

    Raises:
        SettingsError: the engine is not known.
    """
    if engine not in FRAMEWORKS:
        raise SettingsError("engine", f"{engine!r:.60} is not known; choose one of {', '.join(FRAMEWORKS)}.")
    known = {**UNKNOWN, **models}
    spec = DRAFTERS[settings.drafter] if settings.strategy == "speculative" else None
    elsewhere = "" if spec is None else {**DRAFTING.get(spec.name, {}), "llama.cpp": spec.llama_cpp}.get(engine)
    other = "Run it plain, or advise again without this method."
    if elsewhere is None:
        return f"# {FRAMEWORKS[engine]} has no {DRAFTERS[settings.drafter].label}. {other}"
    drafts = spec is not None and spec.needs == "draft"
    if drafts and "draft_tokenizer" in models and engine != "transformers":
        return f"# {FRAMEWORKS[engine]} cannot draft with a tokenizer other than the target's. {other}"
    gamma, notes = settings.gamma, []
    if spec is not None:
        if settings.adaptive_gamma or settings.tree_nodes:
            gamma = fixed_gamma or gamma
            was = "The draft was a tree, and this is a chain" if settings.tree_nodes else "γ was adaptive"
            about = "the fastest fixed γ that was measured" if fixed_gamma else "not measured"
            notes.append(f"{was}; {gamma} is {about}.")
        if settings.acceptance in LOSSY_RULES:
            notes.append(f"The rule {settings.acceptance!r} is lossy and has no option here: this is lossless.")
        by_script = engine == "transformers" and elsewhere.startswith("assistant")  # which sets p_min
        reads = spec.reads + ("p_min",) * (settings.p_min > 0 and not by_script)
        unset = [name for name in reads if f"{{{name}}}" not in elsewhere]
        notes += [f"Measured with {name} {getattr(settings, name)}, which is not set here." for name in unset]
    for role, quantised in (weights or {}).items():
        if quantised and (role == "target" or drafts):
            notes.append(f"Measured with {quantised} weights of the {role}; these lines do not quantise it.")
    values = {
        "gamma": gamma,
        "rows": gamma + 1,
        # llama.cpp drafts nothing that is shorter than what it matched.
        "lookup_ngram": min(settings.lookup_ngram, gamma if engine == "llama.cpp" else MAX_LOOKUP_NGRAM),
        "p_min": max(settings.p_min, VLLM_LEAST if engine == "vllm" else 0.0),
        "earlier_outputs": VLLM_CACHED if settings.earlier_outputs else 0,
        "exit_layer": settings.exit_layer or "LAYERS",
        "draft": known["draft"],
        "head": known["head"],
        "draft_gguf": _gguf(known["draft"]),
        "head_gguf": _gguf(known["head"]),
    }
    quote = json.dumps if engine in ("transformers", "vllm") else shlex.quote
    words = {name: value if isinstance(value, int | float) else quote(value) for name, value in values.items()}
    filled = elsewhere and elsewhere.format(**words)
    if engine == "transformers":
        names = {name: json.dumps(known[name]) for name in ("target", "draft", "draft_tokenizer") if name in known}
        text = SCRIPT.render(settings=settings, dtype=dtype, gamma=gamma, drafting=filled, drafts=drafts, **names)
    else:
        target = known["target"] if engine != "llama.cpp" else _gguf(known["target"])
        flags = (
            filled and f" \\\n  {f'--speculative-config {shlex.quote(filled)}' if engine == 'vllm' else filled}"
        )
        if engine == "llama.cpp" and target != known["target"]:
            notes.append(GGUF_OF_BUILTIN if known["target"] == BUILTIN else GGUF)
        text = f"{COMMANDS[engine]} {shlex.quote(target)}{flags}\n"
    return "".join(f"# {note}\n" for note in notes) + text


def _gguf(name: str) -> str:
    """The file that a model is converted into; itself if it is one."""
    return name if name.endswith(".gguf") else f"{Path(name).name or name}.gguf"

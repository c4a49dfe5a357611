"""A setting as the lines that set it in the engines people run.

What drafts, each drafter's row says itself (``DrafterSpec.elsewhere``); here is what stands around it. The options
are those of transformers 5.23 (``GenerationConfig``), of vLLM's ``--speculative-config``
(docs.vllm.ai, features/speculative_decoding), of SGLang's server arguments (docs.sglang.io,
advanced_features/speculative_decoding) and of ``llama-server --help``.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping
from pathlib import Path

from specdemo.drafters import DRAFTERS
from specdemo.errors import SettingsError
from specdemo.settings import LOSSY_RULES, Settings

ENGINES = {"transformers": "transformers", "vllm": "vLLM", "sglang": "SGLang", "llama.cpp": "llama.cpp"}
"""What can be asked for, and what people call it."""
MOVED = "inputs = inputs.to(target.device)"
UNKNOWN = {"target": "TARGET", "draft": "DRAFT", "head": "HEAD"}
"""What stands for a model that was not loaded by a name."""


def engine_lines(
    engine: str,
    settings: Settings,
    models: Mapping[str, str],
    dtype: str = "auto",
    mean_length: float | None = None,
) -> str:
    """The lines, or a comment that says why there are none.

    Args:
        engine: a key of ``ENGINES``.
        settings: what to set.
        models: names or folders of the models by role.
        dtype: of the weights, as torch calls it.
        mean_length: tokens a round that an adaptive γ kept; where γ is fixed it is set near to that.

    Raises:
        SettingsError: the engine is not known.
    """
    if engine not in ENGINES:
        raise SettingsError("engine", f"{engine!r:.60} is not known; choose one of {', '.join(ENGINES)}.")
    known = {**UNKNOWN, **models, "dtype": dtype}
    spec = DRAFTERS[settings.drafter] if settings.strategy == "speculative" else None
    elsewhere = spec.elsewhere.get(engine) if spec is not None else ""
    if elsewhere is None:
        return f"# {ENGINES[engine]} has no {spec.label}. Run it plain, or advise again without this method."
    gamma, notes = settings.gamma, []
    if spec is not None and (settings.adaptive_gamma or settings.tree_nodes):
        gamma = max(1, math.ceil(mean_length or settings.gamma))
        was = "The draft was a tree, and this is a chain" if settings.tree_nodes else "γ was adaptive"
        notes.append(f"{was}; {gamma} is near the tokens that a round kept.")
    if spec is not None and settings.acceptance in LOSSY_RULES:
        notes.append(f"The rule {settings.acceptance!r} is lossy and has no option here: this one is lossless.")
    values = {
        "gamma": gamma,
        "rows": gamma + 1,
        "lookup_ngram": settings.lookup_ngram,
        "exit_layer": settings.exit_layer or "LAYERS",
        "draft": known["draft"],
        "head": known["head"],
        "draft_gguf": _gguf(known["draft"]),
        "head_gguf": _gguf(known["head"]),
    }
    quote = json.dumps if engine in ("transformers", "vllm") else shlex.quote
    words = {name: value if isinstance(value, int) else quote(value) for name, value in values.items()}
    filled = elsewhere and elsewhere.format(**words)
    text = _AROUND[engine](filled, settings, known, spec is not None and spec.needs == "draft", gamma)
    return "".join(f"# {note}\n" for note in notes) + text


def _transformers(filled: str, settings: Settings, known: Mapping[str, str], drafts: bool, gamma: int) -> str:
    """A script that runs as it is."""
    load = "AutoModelForCausalLM.from_pretrained({}, dtype=target.dtype).to(target.device)"
    draft = [
        f"draft = {load.format(json.dumps(known['draft']))}",
        f"draft.generation_config.num_assistant_tokens = {gamma}",
        'draft.generation_config.num_assistant_tokens_schedule = "constant"',
        "draft.generation_config.assistant_confidence_threshold = 0.0",
    ]
    sampling = ["do_sample=False"]
    if not settings.greedy:
        warm = (f"{name}={getattr(settings, name)}" for name in ("temperature", "top_k", "top_p"))
        sampling = ["do_sample=True", *warm]
    penalty = [] if settings.repetition_penalty == 1 else [f"repetition_penalty={settings.repetition_penalty}"]
    options = [f"max_new_tokens={settings.max_new_tokens}", *sampling, *penalty, *([filled] if filled else [])]
    lines = [
        "from transformers import AutoModelForCausalLM, AutoTokenizer",
        "",
        'prompt = "Once upon a time"',
        f"tokenizer = AutoTokenizer.from_pretrained({json.dumps(known['target'])})",
        f'target = AutoModelForCausalLM.from_pretrained({json.dumps(known["target"])}, dtype="{known["dtype"]}")',
        *(draft if drafts else []),
        *_prompt(settings),
        "output = target.generate(",
        "    **inputs,",
        *(f"    {option}," for option in options),
        ")",
        'print(tokenizer.decode(output[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True))',
    ]
    return "\n".join(lines) + "\n"


def _prompt(settings: Settings) -> list[str]:
    options = ['return_tensors="pt"', "return_token_type_ids=False"]
    template = []
    if settings.chat is not False:
        options.append("add_special_tokens=not tokenizer.chat_template")
        template = [
            "if tokenizer.chat_template:",
            '    turn = [{"role": "user", "content": prompt}]',
            "    prompt = tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)",
        ]
    return [*template, f"options = dict({', '.join(options)})", "inputs = tokenizer(prompt, **options)", MOVED]


def _vllm(filled: str, settings: Settings, known: Mapping[str, str], drafts: bool, gamma: int) -> str:
    config = f" \\\n  --speculative-config {shlex.quote(filled)}" if filled else ""
    return f"vllm serve {shlex.quote(known['target'])}{config}\n"


def _sglang(filled: str, settings: Settings, known: Mapping[str, str], drafts: bool, gamma: int) -> str:
    flags = f" \\\n  {filled}" if filled else ""
    return f"python -m sglang.launch_server --model-path {shlex.quote(known['target'])}{flags}\n"


def _llama_cpp(filled: str, settings: Settings, known: Mapping[str, str], drafts: bool, gamma: int) -> str:
    flags = f" \\\n  {filled}" if filled else ""
    return f"llama-server -m {shlex.quote(_gguf(known['target']))}{flags}\n"


def _gguf(name: str) -> str:
    """The file that a model is converted into, by convert_hf_to_gguf.py or specdemo.training.gguf."""
    return f"{Path(name).name or name}.gguf"


_AROUND = {"transformers": _transformers, "vllm": _vllm, "sglang": _sglang, "llama.cpp": _llama_cpp}

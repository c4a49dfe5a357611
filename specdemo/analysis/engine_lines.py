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

from specdemo.drafters import DRAFTERS
from specdemo.errors import SettingsError
from specdemo.settings import LOSSY_RULES, Settings

FRAMEWORKS = {"transformers": "transformers", "vllm": "vLLM", "sglang": "SGLang", "llama.cpp": "llama.cpp"}
"""What can be asked for, and what people call it."""
DRAFTING = {
    "model": {
        "transformers": "assistant_model=draft",
        "vllm": '{{"method": "draft_model", "model": {draft}, "num_speculative_tokens": {gamma}}}',
        "sglang": "--speculative-algorithm STANDALONE --speculative-draft-model-path {draft} \\\n"
        "  --speculative-num-steps {gamma} --speculative-eagle-topk 1 --speculative-num-draft-tokens {rows}",
        "llama.cpp": "-md {draft_gguf} --spec-type draft-simple --spec-draft-n-max {gamma}",
    },
    "prompt_lookup": {
        "transformers": "prompt_lookup_num_tokens={gamma},\n    max_matching_ngram_size={lookup_ngram}",
        "vllm": '{{"method": "ngram", "num_speculative_tokens": {gamma}, "prompt_lookup_max": {lookup_ngram}, '
        '"prompt_lookup_min": 1}}',
        "sglang": "--speculative-algorithm NGRAM --speculative-num-draft-tokens {rows}",
        "llama.cpp": "--spec-type ngram-simple --spec-ngram-simple-size-n {lookup_ngram} "
        "--spec-ngram-simple-size-m {gamma}",
    },
    "early_exit": {"transformers": "assistant_early_exit={exit_layer}"},
    "eagle3": {
        "vllm": '{{"method": "eagle3", "model": {head}, "num_speculative_tokens": {gamma}}}',
        "sglang": "--speculative-algorithm EAGLE3 --speculative-draft-model-path {head} \\\n"
        "  --speculative-num-steps {gamma} --speculative-eagle-topk 1 --speculative-num-draft-tokens {rows}",
        "llama.cpp": "-md {head_gguf} --spec-type draft-eagle3 --spec-draft-n-max {gamma}",
    },
}
"""How engines are told to draft so, by drafter; what stands in no row cannot be had there."""
MOVED = "inputs = inputs.to(target.device)"
BUILTIN = "assets/builtin/target"
COMMANDS = {
    "vllm": "vllm serve",
    "sglang": "python -m sglang.launch_server --model-path",
    "llama.cpp": "llama-server -m",
}
GGUF = "llama.cpp's convert_hf_to_gguf.py makes a .gguf file of a model's folder (--outfile names it)."
GGUF_OF_BUILTIN = "python -m specdemo.training.gguf . writes these files of the builtin pair."
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
    known = {**UNKNOWN, **models, "dtype": dtype}
    spec = DRAFTERS[settings.drafter] if settings.strategy == "speculative" else None
    elsewhere = DRAFTING.get(spec.name, {}).get(engine) if spec is not None else ""
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
        unset = [name for name in spec.reads if f"{{{name}}}" not in elsewhere]
        notes += [f"Measured with {name} {getattr(settings, name)}, which is not set here." for name in unset]
    for role, quantised in (weights or {}).items():
        if quantised and (role == "target" or drafts):
            notes.append(f"Measured with {quantised} weights of the {role}; these lines do not quantise it.")
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
    if engine == "transformers":
        text = _transformers(filled, settings, known, drafts, gamma)
    else:
        target = known["target"] if engine != "llama.cpp" else _gguf(known["target"])
        flags = (
            filled and f" \\\n  {f'--speculative-config {shlex.quote(filled)}' if engine == 'vllm' else filled}"
        )
        notes += [f"{GGUF_OF_BUILTIN if known['target'] == BUILTIN else GGUF}"] * (engine == "llama.cpp")
        text = f"{COMMANDS[engine]} {shlex.quote(target)}{flags}\n"
    return "".join(f"# {note}\n" for note in notes) + text


def _transformers(filled: str, settings: Settings, known: Mapping[str, str], drafts: bool, gamma: int) -> str:
    """A script that runs as it is."""
    load = "AutoModelForCausalLM.from_pretrained({}, dtype=target.dtype).to(target.device)"
    draft = [f"draft = {load.format(json.dumps(known['draft']))}"] if drafts else []
    own_tokenizer = []
    if drafts and "draft_tokenizer" in known:
        draft.append(f"draft_tokenizer = AutoTokenizer.from_pretrained({json.dumps(known['draft_tokenizer'])})")
        own_tokenizer = ["tokenizer=tokenizer", "assistant_tokenizer=draft_tokenizer"]
    if filled.startswith("assistant"):  # early exit drafts with the target itself
        drafting = f"{'draft' if drafts else 'target'}.generation_config"
        draft += [
            f"{drafting}.num_assistant_tokens = {gamma}",
            f'{drafting}.num_assistant_tokens_schedule = "constant"',
            f"{drafting}.assistant_confidence_threshold = 0.0",
        ]
    sampling = ["do_sample=False"]
    if not settings.greedy:
        warm = (f"{name}={getattr(settings, name)}" for name in ("temperature", "top_k", "top_p"))
        sampling = ["do_sample=True", *warm]
    penalty = [] if settings.repetition_penalty == 1 else [f"repetition_penalty={settings.repetition_penalty}"]
    options = [f"max_new_tokens={settings.max_new_tokens}", *sampling, *penalty, *([filled] if filled else [])]
    options += own_tokenizer
    lines = [
        "from transformers import AutoModelForCausalLM, AutoTokenizer",
        "",
        'prompt = "Once upon a time"',
        f"tokenizer = AutoTokenizer.from_pretrained({json.dumps(known['target'])})",
        f'target = AutoModelForCausalLM.from_pretrained({json.dumps(known["target"])}, dtype="{known["dtype"]}")',
        *draft,
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


def _gguf(name: str) -> str:
    """The file that a model is converted into."""
    return f"{Path(name).name or name}.gguf"

"""Toy models, a toy tokenizer and the yardsticks of the tests; everything seeded, nothing downloaded."""

from __future__ import annotations

import copy
import functools
import gc
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import torch
import transformers
from hub import Hub
from scipy.stats import chisquare
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedModel, PreTrainedTokenizerFast

import specdemo

# Each process of tests has ports of its own: where two apps begin on one port at once, the one that loses finds no
# other, since Gradio then tries the next ones with a server for agents (MCP) that can be started only once.
os.environ["GRADIO_SERVER_PORT"] = str(8000 + 100 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]))

torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
hypothesis.settings.register_profile("tests", derandomize=True, deadline=None, database=None, max_examples=30)
hypothesis.settings.load_profile("tests")

FAMILIES = ("llama", "qwen2", "qwen3", "gpt2", "gpt_neox")
MORE_FAMILIES = (
    "opt",
    "phi3",
    "gemma2",
    "gemma3",
    "mistral",
    "mixtral",
    "qwen3_moe",
    "stablelm",
    "smollm3",
)
EOS = (7, 11)
FIRST_PLAIN = 12  # ids below are left to special tokens in prompts


# --- models -----------------------------------------------------------------------------------------------


def build(
    family: str,
    *,
    seed: int = 0,
    vocabulary: int = 64,
    hidden: int = 32,
    layers: int = 2,
    heads: int = 4,
    context: int = 256,
    eos: Sequence[int] | int | None = EOS,
    dropout: float = 0.0,
    scale: float = 0.3,
) -> PreTrainedModel:
    """A random model with weights wide enough that its greedy output varies instead of repeating a token."""
    common = {
        "vocab_size": vocabulary,
        "bos_token_id": 1,
        "eos_token_id": list(eos) if isinstance(eos, tuple | list) else eos,
        "pad_token_id": 0,
    }
    decoder = {
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "max_position_embeddings": context,
        "attention_dropout": dropout,
    }
    grouped = {**decoder, "num_key_value_heads": heads // 2}
    mixed = ["sliding_attention" if i % 2 == 0 else "full_attention" for i in range(layers)]
    config = {
        "llama": lambda: transformers.LlamaConfig(**common, **grouped),
        "qwen2": lambda: transformers.Qwen2Config(**common, **grouped),
        "qwen3": lambda: transformers.Qwen3Config(**common, **grouped, head_dim=16),
        "mistral": lambda: transformers.MistralConfig(**common, **grouped, sliding_window=8),
        "phi3": lambda: transformers.Phi3Config(**common, **grouped, sliding_window=8),
        "stablelm": lambda: transformers.StableLmConfig(**common, **grouped),
        "smollm3": lambda: transformers.SmolLM3Config(**common, **grouped),
        "gemma2": lambda: transformers.Gemma2Config(
            **common, **grouped, head_dim=8, sliding_window=8, tie_word_embeddings=False
        ),
        "gemma3": lambda: transformers.Gemma3TextConfig(
            **common, **grouped, head_dim=8, sliding_window=8, layer_types=mixed, tie_word_embeddings=False
        ),
        "mixtral": lambda: transformers.MixtralConfig(**common, **grouped, num_local_experts=3),
        "qwen3_moe": lambda: transformers.Qwen3MoeConfig(
            **common, **grouped, head_dim=16, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32
        ),
        "opt": lambda: transformers.OPTConfig(
            **common,
            hidden_size=hidden,
            ffn_dim=2 * hidden,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            max_position_embeddings=context,
            word_embed_proj_dim=hidden,
            dropout=dropout,
        ),
        "gpt_neox": lambda: transformers.GPTNeoXConfig(**common, **decoder, hidden_dropout=dropout),
        "gpt2": lambda: transformers.GPT2Config(
            **common,
            n_embd=hidden,
            n_layer=layers,
            n_head=heads,
            n_positions=context,
            resid_pdrop=dropout,
            embd_pdrop=dropout,
            attn_pdrop=dropout,
        ),
    }[family]()
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for weights in model.parameters():
            if weights.ndim > 1:
                weights.normal_(0.0, scale)
    return model


def perturbed(model: PreTrainedModel, amount: float = 0.015, seed: int = 1) -> PreTrainedModel:
    """A copy with noise on every weight: a draft that is often right and often wrong."""
    draft = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weights in draft.parameters():
            weights.add_(torch.randn(weights.shape, generator=generator), alpha=amount)
    return draft


def adversary(model: PreTrainedModel) -> PreTrainedModel:
    """A copy that likes best what ``model`` likes least. The output layer must not be tied to the input's."""
    draft = copy.deepcopy(model)
    with torch.no_grad():
        draft.get_output_embeddings().weight.neg_()
    return draft


def widened(model: PreTrainedModel, vocabulary: int, *, factor: float = 1.0) -> PreTrainedModel:
    """A copy with another vocabulary width; new output rows are random, ``factor`` times as long as the old."""
    copied = copy.deepcopy(model)
    old = copied.config.vocab_size
    copied.resize_token_embeddings(vocabulary, mean_resizing=False)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for layer in (copied.get_input_embeddings(), copied.get_output_embeddings()):
            extra = layer.weight[old:]
            extra.copy_(torch.randn(extra.shape, generator=generator) * 0.3 * factor)
    return copied.eval()


def scripted(
    script: Sequence[int], start: int, vocabulary: int, *, eos: Sequence[int] = (), extra: int = 20
) -> PreTrainedModel:
    """A GPT-2 that looks only at the position: after ``start`` prompt tokens it says ``script``.

    Its position embeddings are one-hot, its blocks add nothing, its output layer is the script. Positions
    outside the script predict token 0.
    """
    positions = start + len(script) + extra
    model = build(
        "gpt2", vocabulary=vocabulary, hidden=positions, layers=1, heads=1, context=positions, eos=list(eos)
    )
    model.config.tie_word_embeddings = False
    model.lm_head.weight = torch.nn.Parameter(torch.zeros(vocabulary, positions))
    with torch.no_grad():
        model.transformer.wte.weight.zero_()
        model.transformer.wpe.weight.copy_(torch.eye(positions))
        for block in model.transformer.h:
            for layer in (block.attn.c_proj, block.mlp.c_proj):
                layer.weight.zero_()
                layer.bias.zero_()
        # What the last layer norm makes of a one-hot vector, shifted so that the cold places are 0 again.
        model.transformer.ln_f.bias.fill_((positions - 1) ** -0.5)
        says = [0] * positions
        says[start - 1 : start - 1 + len(script)] = script
        for position, token in enumerate(says):
            model.lm_head.weight[token, position] = 1.0
    return model.eval()


@functools.cache
def toy_pair(family: str) -> specdemo.ModelPair:
    """A random target with a perturbed copy as draft; built once, never to be changed by a test."""
    target = build(family)
    return specdemo.ModelPair(target, perturbed(target), None)


@functools.cache
def endless_pair(family: str) -> specdemo.ModelPair:
    """The same without end tokens, for tests that count tokens."""
    target = build(family, eos=None)
    return specdemo.ModelPair(target, perturbed(target), None)


@functools.cache
def prompt_ids(length: int, vocabulary: int = 64, seed: int = 0) -> tuple[int, ...]:
    """A random prompt of ids."""
    generator = torch.Generator().manual_seed(1000 * seed + length)
    return tuple(torch.randint(FIRST_PLAIN, vocabulary, (length,), generator=generator).tolist())


def generate(model: PreTrainedModel, ids: Sequence[int], count: int, **options: object) -> list[int]:
    """transformers' own greedy decoding: the yardstick."""
    prompt = torch.tensor([list(ids)])
    whole = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        do_sample=False,
        max_new_tokens=count,
        pad_token_id=0,
        **options,
    )
    return whole[0, len(ids) :].tolist()


# --- a tokenizer that knows every byte --------------------------------------------------------------------

TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    "{% if enable_thinking is not defined or enable_thinking %}<|think|>{% endif %}"
)
SPECIALS = ("<|pad|>", "<|end|>", "<|user|>", "<|assistant|>", "<|think|>")
BYTE_VOCABULARY = len(SPECIALS) + 256


@functools.cache
def byte_tokenizer(template: str | None = TEMPLATE) -> PreTrainedTokenizerFast:
    """One token a byte (so every emoji is four) and a chat template with a thinking switch."""
    names = [*SPECIALS, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    backend = Tokenizer(models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<|pad|>",
        eos_token="<|end|>",
        additional_special_tokens=list(SPECIALS[2:]),
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = template
    return tokenizer


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    return byte_tokenizer()


@pytest.fixture(scope="session")
def text_pair() -> specdemo.ModelPair:
    """A pair that reads and writes text, byte by byte."""
    target = build("llama", vocabulary=BYTE_VOCABULARY, eos=[1])
    return specdemo.ModelPair(target, perturbed(target), byte_tokenizer())


# --- statistics -------------------------------------------------------------------------------------------


def warped(logits: Sequence[float], settings: specdemo.Settings, seen: Sequence[int] = ()) -> np.ndarray:
    """The distribution that settings make of one row of logits, in float64 and without transformers."""
    scores = np.array(logits, dtype=np.float64)
    for token in set(seen):
        penalty = settings.repetition_penalty
        scores[token] = scores[token] * penalty if scores[token] < 0 else scores[token] / penalty
    scores /= settings.temperature
    if settings.top_k:
        scores[scores < np.sort(scores)[-min(settings.top_k, len(scores))]] = -np.inf
    p = np.exp(scores - scores.max())
    p /= p.sum()
    if settings.top_p < 1.0:
        order = np.argsort(-p)
        before = np.cumsum(p[order]) - p[order]
        p[order[before >= settings.top_p]] = 0.0
        p /= p.sum()
    return p


def p_value(observed: Mapping[object, int], exact: Mapping[object, float]) -> float:
    """χ² test of counts against probabilities; 0 if something was seen that cannot be.

    Outcomes expected fewer than five times are pooled.
    """
    if any(exact.get(outcome, 0.0) <= 0.0 for outcome, count in observed.items() if count):
        return 0.0
    draws = sum(observed.values())
    cells = [(observed.get(o, 0), draws * p) for o, p in exact.items() if p > 0]
    large = [cell for cell in cells if cell[1] >= 5]
    pooled = np.array([cell for cell in cells if cell[1] < 5]).reshape(-1, 2).sum(0)
    if pooled[1] > 0:
        large.append(tuple(pooled))
    counts, expected = np.array(large, dtype=float).T
    return float(chisquare(counts, expected * counts.sum() / expected.sum()).pvalue)


# --- checkpoints as files, and a hub that serves them ------------------------------------------------------


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub on loopback that this process asks, with an empty cache and no token."""
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "SPACE_ID", "SPECDEMO_PUBLIC", "SPECDEMO_MEMORY_GB"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("specdemo.models.hub.PAUSE_SECONDS", 0.0)
    with Hub() as served:
        served.adopt(monkeypatch, tmp_path / "cache")
        yield served


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Path]]:
    """Folders of a family's target and draft; written at the first call, never to be changed by a test."""
    from checkpoints import checkpoint_pair  # it needs this module

    @functools.cache
    def write(family: str) -> tuple[Path, Path]:
        return checkpoint_pair(tmp_path_factory.mktemp(family), family)

    return write


@pytest.fixture
def doctored(folders: Callable[[str], tuple[Path, Path]], tmp_path: Path) -> Callable[[str], Path]:
    """A copy of a family's target folder, to be spoilt."""
    return lambda family="llama": Path(shutil.copytree(folders(family)[0], tmp_path / f"doctored-{family}"))


def raced(
    pairs: specdemo.ModelPair | Sequence[specdemo.ModelPair], prompt: str, lanes: Sequence[specdemo.Settings]
) -> list[specdemo.Trace]:
    """The traces of a race."""
    from specdemo.lanes import trace_of
    from specdemo.prompt import encode

    each = pairs if isinstance(pairs, Sequence) else [pairs] * len(lanes)
    rounds: list[list[specdemo.Round]] = [[] for _ in lanes]
    for lane, round_ in specdemo.race(pairs, prompt, lanes):
        rounds[lane].append(round_)
    return [trace_of(p, encode(p, prompt), s, r) for p, s, r in zip(each, lanes, rounds, strict=True)]


def pytest_collection_finish() -> None:
    """What was imported stays: collections, of which loads and unloads ask for hundreds, need not go over it."""
    gc.collect()
    gc.freeze()


def living_models() -> int:
    """How many models with weights this process holds, reachable or not collected by reference counts alone."""
    gc.collect()
    models_ = [o for o in gc.get_objects() if issubclass(type(o), PreTrainedModel)]
    return sum(any(not p.is_meta for p in m.parameters()) for m in models_ if not _is_inner(m, models_))


def _is_inner(model: PreTrainedModel, others: Sequence[PreTrainedModel]) -> bool:
    """Whether a model is the body of another, as ``LlamaModel`` is of ``LlamaForCausalLM``."""
    return any(getattr(other, "base_model", None) is model and other is not model for other in others)


@pytest.fixture
def runners(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list]:
    """The runners of the lanes opened since: target, then draft. Holds them weakly."""
    import weakref

    from specdemo.decoding import opening
    from specdemo.decoding.runner import Runner

    made: list[weakref.ref] = []

    class Watched(Runner):
        def __init__(self, *args: object) -> None:
            super().__init__(*args)
            made.append(weakref.ref(self))

    monkeypatch.setattr(opening, "Runner", Watched)
    return lambda: [made_() for made_ in made]

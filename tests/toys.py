"""Toy models, a toy tokenizer and the yardsticks of the tests; everything seeded, nothing downloaded."""

from __future__ import annotations

import copy
import functools
import gc
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
import torch
import transformers
from scipy.stats import chisquare
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedModel, PreTrainedTokenizerFast

import specdemo
from specdemo.decoding.acceptance import Verdict, rejection_sampling, row_after
from specdemo.decoding.engines.eager import EagerRunner
from specdemo.decoding.sampling import Sampler
from specdemo.models.eagle3_config import Eagle3Config
from specdemo.trace import Trace

FAMILIES = ("llama", "qwen2", "qwen3", "gpt2", "gpt_neox")
MORE_FAMILIES = ("opt", "phi3", "gemma2", "gemma3", "mistral", "mixtral", "qwen3_moe", "stablelm", "smollm3")
SHAPES: dict[str, dict[str, object]] = {
    "qwen3": {"head_dim": 16},
    "mistral": {"sliding_window": 8},
    "phi3": {"sliding_window": 8},
    "gemma2": {"head_dim": 8, "sliding_window": 8, "tie_word_embeddings": False},
    "gemma3": {"head_dim": 8, "sliding_window": 8, "tie_word_embeddings": False},
    "mixtral": {"num_local_experts": 3},
    "qwen3_moe": {"head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32},
    "opt": {"ffn_dim": 64, "word_embed_proj_dim": 32},
    "qwen3_5_text": {"head_dim": 16, "full_attention_interval": 1},
    "qwen3_5_moe_text": {
        **{"head_dim": 16, "full_attention_interval": 1, "num_experts": 4, "num_experts_per_tok": 2},
        **{"moe_intermediate_size": 32, "shared_expert_intermediate_size": 32},
    },
}
"""What a family's configuration has beside the sizes of all; opt has those of the default width."""
EOS = (7, 11)
FIRST_PLAIN = 12  # ids below are left to special tokens in prompts


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
    **more: object,
) -> PreTrainedModel:
    """A random model with weights wide enough that its greedy output varies instead of repeating a token."""
    shape: dict[str, object] = {
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "max_position_embeddings": context,
        "bos_token_id": 1,
        "eos_token_id": list(eos) if isinstance(eos, tuple | list) else eos,
        "pad_token_id": 0,
    }
    if family not in ("gpt2", "opt"):
        shape["intermediate_size"] = 2 * hidden
    if family not in ("gpt2", "gpt_neox", "opt"):
        shape["num_key_value_heads"] = heads // 2
    if family == "gemma3":
        shape["layer_types"] = ["sliding_attention" if i % 2 == 0 else "full_attention" for i in range(layers)]
    drops = ("attention_dropout", "hidden_dropout", "dropout", "resid_pdrop", "embd_pdrop", "attn_pdrop")
    shape |= dict.fromkeys(drops, dropout) | SHAPES.get(family, {}) | more
    config = transformers.AutoConfig.for_model({"gemma3": "gemma3_text"}.get(family, family), **shape)
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


def build_head(
    target: PreTrainedModel,
    *,
    draft_vocabulary: int | None = None,
    seed: int = 2,
    scale: float = 0.3,
    own_embeddings: bool = False,
    **flags: object,
) -> specdemo.Eagle3Head:
    """A random head for a target; a draft vocabulary that is smaller than the target's is drawn from it.

    Args:
        flags: fields of :class:`Eagle3Config`; ``kind`` is ``llama`` or ``qwen3``.
    """
    text = target.config.get_text_config()
    kind = {"llama": transformers.LlamaConfig, "qwen3": transformers.Qwen3Config}[flags.pop("kind", "llama")]
    layer = kind(
        hidden_size=text.hidden_size,
        intermediate_size=48,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        num_hidden_layers=1,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
    )
    layer._attn_implementation = "sdpa"
    vocabulary = text.vocab_size
    drafted = draft_vocabulary or vocabulary
    last = text.num_hidden_layers - 1
    described = {"aux_layers": (min(1, last), last // 2, last), **flags}
    torch.manual_seed(seed)
    config = Eagle3Config("a toy head", layer, vocabulary, drafted, text.hidden_size, **described)
    head = specdemo.Eagle3Head(config, own_embeddings=own_embeddings).requires_grad_(False).eval()
    for weights in head.parameters():
        weights.normal_(1.0 if weights.ndim == 1 else 0.0, 0.2 if weights.ndim == 1 else scale)
    if drafted < vocabulary:
        head.target_ids = torch.randperm(vocabulary)[:drafted].sort().values
    return head


def skilled_head(target: PreTrainedModel, **options: object) -> specdemo.Eagle3Head:
    """A head that is often right about this target's greedy text and often wrong: its output layer is fitted."""
    ids, head = [*prompt_ids(9), *generate(target, prompt_ids(9), 120)], build_head(target, **options)
    hidden = EagerRunner(target, aux_layers=head.aux_layers).forward(ids[:-2], keep=0).hidden
    table, positions = head.embeddings(target), torch.arange(len(ids) - 2).unsqueeze(0)
    with torch.no_grad():
        fed = torch.nn.functional.embedding(torch.tensor(ids[1:-1]), table)
        h = head.norm(head(head.project(hidden).unsqueeze(0), fed.unsqueeze(0), positions))[0]
        wanted = (head.target_ids == torch.tensor(ids[2:]).unsqueeze(1)).float()
        head.lm_head.weight.copy_(torch.linalg.lstsq(h, wanted, driver="gelsd").solution.T)
    return head


@torch.no_grad()
def build_mtp(target: PreTrainedModel, seed: int = 3) -> specdemo.MtpHead:
    """A random MTP head for a target."""
    torch.manual_seed(seed)
    head = specdemo.MtpHead(target).requires_grad_(False).eval()
    for weights in head.parameters():
        random = torch.randn(weights.shape)
        weights.copy_(weights + 0.2 * random if weights.ndim == 1 else 0.3 * random)
    for norm in (head.norm, head.target_norm):
        norm.weight.copy_(target.get_decoder().norm.weight)
    return head


@torch.no_grad()
def skilled_mtp(target: PreTrainedModel) -> specdemo.MtpHead:
    """One that is often right about this target's greedy text: fitted to give its next hidden state, but for what
    its layer adds.
    """
    head = build_mtp(target)
    for name, weights in head.layers.named_parameters():
        weights.mul_(0.1 if "o_proj" in name or "down_proj" in name else 1.0)
    ids = torch.tensor([*prompt_ids(9), *generate(target, prompt_ids(9), 120)])
    hidden = EagerRunner(target, aux_layers=head.aux_layers).forward(ids[:-1], keep=0).hidden
    embedded = head.pre_fc_norm_embedding(torch.nn.functional.embedding(ids[1:-1], head.embeddings(target)))
    read = torch.cat([embedded, head.pre_fc_norm_hidden(head.project(hidden[:-1]))], dim=1)
    head.fc.weight.copy_(torch.linalg.lstsq(read, hidden[1:], driver="gelsd").solution.T)
    return head


MTP_FAMILIES = ("llama", "qwen3")
"""Whose toy pairs have an MTP head: those whose models are built as the families that really carry one."""


@functools.cache
def toy_pair(family: str) -> specdemo.ModelPair:
    """A random target with a perturbed copy as draft; built once, never to be changed by a test."""
    target = build(family)
    return specdemo.ModelPair(target, perturbed(target), None, head=skilled_head(target))


@functools.cache
def endless_pair(family: str) -> specdemo.ModelPair:
    """The same without end tokens, for tests that count tokens."""
    target = build(family, eos=None)
    mtp = skilled_mtp(target) if family in MTP_FAMILIES else None
    return specdemo.ModelPair(
        target, perturbed(target), None, head=skilled_head(target, draft_vocabulary=48), mtp=mtp
    )


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


def raced(
    pairs: specdemo.ModelPair | Sequence[specdemo.ModelPair], prompt: str, lanes: Sequence[specdemo.Settings]
) -> list[specdemo.Trace]:
    """The traces of a race."""
    race = specdemo.race(pairs, prompt, lanes)
    for _ in race:
        pass
    return race.traces()


def living_models() -> int:
    """How many models with weights this process holds, reachable or not collected by reference counts alone."""
    gc.collect()
    models_ = [o for o in gc.get_objects() if issubclass(type(o), PreTrainedModel)]
    return sum(any(not p.is_meta for p in m.parameters()) for m in models_ if not _is_inner(m, models_))


def _is_inner(model: PreTrainedModel, others: Sequence[PreTrainedModel]) -> bool:
    """Whether a model is the body of another, as ``LlamaModel`` is of ``LlamaForCausalLM``."""
    return any(getattr(other, "base_model", None) is model and other is not model for other in others)


def no_residual(scores: torch.Tensor, drafted: torch.Tensor, q: torch.Tensor | None, sampler: Sampler) -> Verdict:
    """A rule found in tutorials: after a rejection, a fresh draw from p. Wrong."""
    right = rejection_sampling(scores, drafted, q, sampler)
    p = sampler.probabilities(scores)
    return Verdict(right.accepted, sampler.draw(row_after(p, right.accepted)), right.probability)


def check_consistent(trace: Trace) -> None:
    """Everything that holds for any lane, whatever its models said."""
    first, *decode = trace.rounds
    assert [t.kind for t in first.tokens] == ["target"]
    assert (first.drafted, first.accepted) == (0, 0)
    assert [t.id for r in trace.rounds for t in r.emitted] == trace.token_ids
    assert [r.index for r in trace.rounds] == list(range(len(trace.rounds)))
    assert all(r.stop is None for r in trace.rounds[:-1])
    assert trace.rounds[-1].stop in ("eos", "length", "context")
    for round_ in decode:
        kinds, drafted = [t.kind for t in round_.tokens], round_.tokens[: round_.drafted]
        accepted, rejected = kinds.count("accepted"), kinds.count("rejected")
        assert (accepted, accepted + rejected) == (round_.accepted, round_.drafted)
        assert round_.drafted <= (trace.settings.tree_nodes if round_.is_tree else trace.settings.gamma)
        own = kinds[round_.drafted :]
        assert kinds == ["accepted"] * accepted + ["rejected"] * rejected + own
        tried = any(t.kind == "rejected" and t.parent in (None, accepted) for t in drafted)
        expected = "target" if not drafted else "corrected" if tried else "bonus"
        assert own == [expected] or (not own and round_.stop == "eos"), "the target's own token ends a round"
        assert all(t.position == accepted + 1 for t in round_.tokens[round_.drafted :])
        tested = [t.position for t in round_.tokens if t.acceptance is not None]
        if not round_.is_tree:
            assert [t.position for t in drafted] == [*range(1, round_.drafted + 1)]
            assert own != ["corrected"] or len(tested) == accepted + 1
        assert own != ["corrected"] or {*tested} == {*range(1, accepted + 2)}
    for token in trace.tokens:
        drafted_ = token.kind in ("accepted", "rejected")
        assert 0.0 <= token.p <= 1.0
        copied = trace.settings.drafter == "prompt_lookup"  # from no distribution
        assert 0.0 <= token.q <= 1.0 if token.q is not None else copied or not drafted_
        assert token.acceptance is None or (drafted_ and 0.0 <= token.acceptance <= 1.0)
        assert token.kind != "accepted" or token.acceptance > 0.0
    check_times(trace)


TOY_PROMPT = (1, 3, 1)


def toy(
    family: str, vocabulary: int, draft_vocabulary: int | None = None, eos: int | None = None, layers: int = 1
) -> specdemo.ModelPair:
    small = {"hidden": 16, "layers": layers, "heads": 2, "context": 32, "eos": eos}
    target = build(family, vocabulary=vocabulary, **small)
    draft = build(family, seed=1, vocabulary=draft_vocabulary or vocabulary, **small)
    head = build_head(target, draft_vocabulary=vocabulary - 2)
    mtp = build_mtp(target) if family in MTP_FAMILIES else None
    return specdemo.ModelPair(target, draft, None, head=head, mtp=mtp)


def check_times(trace: Trace) -> None:
    before = 0.0
    for round_ in trace.rounds:
        assert round_.seconds > before
        phases = (round_.draft_seconds, round_.verify_seconds, round_.other_seconds)
        assert all(s >= 0.0 for s in phases)
        assert sum(phases) == pytest.approx(round_.seconds - before, abs=1e-9)
        assert all(t.seconds == round_.seconds and t.round == round_.index for t in round_.tokens)
        before = round_.seconds

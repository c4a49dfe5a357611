"""Every family of transformers decodes as ``generate`` does, in every way, or is refused in a sentence.

The tables say which is refused what: a family that runs today must not be refused tomorrow without a word here.
"""

from __future__ import annotations

import pytest
from families import WINDOW, families, tiny
from toys import generate, perturbed, prompt_ids

import specdemo
from specdemo import ModelPair, Settings, SpecDemoError

CHAINS = {
    "plain": {"strategy": "autoregressive"},
    "draft": {},
    "lookup": {"drafter": "prompt_lookup"},
    "early exit": {"drafter": "early_exit"},
}
WAYS = {**CHAINS, "tree": {"tree_nodes": 7}, "batch": {"strategy": "autoregressive"}}
POSITIONS_ARE_SLOTS = (
    "bart bigbird_pegasus blenderbot blenderbot-small bloom falcon-alibi gpt_neo llama4_text marian mbart moshi "
    "mvp pegasus plbart roformer trocr "
)
WITH_STATES = (
    "bailing_hybrid bamba falcon_h1 granitemoehybrid inkling2_text inkling_text kimi_linear lfm2 lfm2_moe "
    "lfm3 mamba2 nemotron_h olmo_hybrid qwen3_5_moe_text qwen3_5_text qwen3_next zamba2 zaya "
)
UNTRUE_STATES = "deepseek_v4 falcon_mamba jamba mamba minimax recurrent_gemma xlstm "
REFUSED = {
    "has no KV cache": (WAYS, "openai-gpt reformer rwkv xlm xlnet"),
    "is no single stack of layers": (WAYS, "blt"),
    "keeps states there": (("early exit",), WITH_STATES + UNTRUE_STATES),
    "cannot decode with a KV cache": (CHAINS, UNTRUE_STATES + "cpmant prophetnet"),
    "reads no draft trees": (
        ("tree",),
        WITH_STATES + UNTRUE_STATES + POSITIONS_ARE_SLOTS + "mpt cpmant prophetnet",
    ),
    "cannot decode a batch": (
        ("batch",),
        WITH_STATES + UNTRUE_STATES + POSITIONS_ARE_SLOTS + "gpt_neox_japanese cpmant prophetnet",
    ),
    "needs several layers in one list": (("early exit",), "hrm_text longcat_flash"),
}
UNLIKE_GENERATE = ("moshi",)
"""``generate`` gives these a cache that forgets what lies before a window, which their masks do not hide."""
VARIANTS = {"falcon-alibi": ("falcon", {"alibi": True, "new_decoder_architecture": False})}
PROMPTS = prompt_ids(24), prompt_ids(15)
COUNT = 9


def refusal(family: str, way: str) -> str | None:
    """What the sentence says in which a family is refused; None where it runs."""
    found = [said for said, (ways, names) in REFUSED.items() if way in ways and family in names.split()]
    return found[0] if found else None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", [*families(), *VARIANTS])
def test_every_family_equals_generate_or_is_refused(family: str) -> None:
    """Guards masks, positions and rollback of whatever transformers has, past windows of eight tokens."""
    assert len(PROMPTS[0]) > 2 * WINDOW
    base, changes = VARIANTS.get(family, (family, {}))
    target = tiny(base, **changes)
    outcomes: dict[str, object] = {}
    pair = None
    for way, fields in WAYS.items():
        try:
            pair = pair or ModelPair(target, perturbed(target))
            settings = Settings(gamma=4, max_new_tokens=COUNT, **fields)
            if way == "batch":
                outcomes[way] = [trace.token_ids for trace in specdemo.run_batch(pair, PROMPTS, settings)]
            else:
                outcomes[way] = specdemo.run(pair, PROMPTS[0], settings).token_ids
        except SpecDemoError as error:
            said = refusal(family, way)
            outcomes[way] = said if said is not None and said in str(error) else error
    expected = {way: refusal(family, way) for way in WAYS}
    if None in expected.values():
        whole = [generate(target, prompt, COUNT) for prompt in PROMPTS]
        if family in UNLIKE_GENERATE:
            whole[0] = outcomes["plain"]
        for way in WAYS:
            expected[way] = expected[way] or (whole if way == "batch" else whole[0])
    assert outcomes == expected

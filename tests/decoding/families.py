"""Every family of causal language models that transformers has, each shrunk from its own default configuration."""

from __future__ import annotations

import torch
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

LAYERS = 2
VOCABULARY = 96
WINDOW = 8
SIZES = (
    (LAYERS, "num_hidden_layers n_layer n_layers num_layers decoder_layers encoder_layers num_decoder_layers"),
    (LAYERS, "num_encoder_layers num_blocks num_layers_per_stack conf_num_hidden_layers depth"),
    (VOCABULARY, "vocab_size vocab_size_per_layer_input decoder_vocab_size unpadded_vocab_size"),
    (32, "hidden_size d_model n_embd emb_dim embedding_size embedding_dim embed_dim word_embed_proj_dim"),
    (32, "input_embedding_size output_embedding_size kv_lora_rank q_lora_rank attention_hidden_size lru_width"),
    (32, "moe_intermediate_size shared_expert_intermediate_size expert_ffn_hidden_size linear_lora_rank"),
    (32, "hidden_size_per_layer_input"),
    (64, "intermediate_size ffn_dim decoder_ffn_dim encoder_ffn_dim d_ff dff dim_ff d_inner ffn_hidden_size"),
    (64, "feed_forward_size intermediate_size_mlp dense_intermediate_size mamba_d_ssm"),
    (4, "num_attention_heads n_head n_heads num_heads attention_heads decoder_attention_heads num_query_groups"),
    (4, "encoder_attention_heads num_encoder_attention_heads num_decoder_attention_heads linear_num_heads"),
    (4, "swa_num_attention_heads index_n_heads linear_num_value_heads"),
    (4, "num_experts n_routed_experts num_local_experts moe_num_experts zero_expert_num"),
    (2, "num_key_value_heads kv_n_heads num_kv_heads swa_num_key_value_heads linear_num_key_heads"),
    (2, "num_experts_per_tok num_experts_per_token moe_topk moe_top_k moe_k"),
    (8, "head_dim d_head dim_head d_kv attention_head_size qk_nope_head_dim qk_rope_head_dim v_head_dim"),
    (8, "rotary_dim swa_head_dim linear_key_head_dim linear_value_head_dim linear_head_dim index_head_dim"),
    (8, "kv_channels state_size mamba_d_state ssm_state_size"),
    (WINDOW, "sliding_window window_size sliding_window_size attention_chunk_size local_attention block_size"),
    (WINDOW, "local_attention_window_len attention_window_size keep_window_size"),
    (256, "max_position_embeddings n_positions n_ctx max_seq_len model_max_length max_target_positions"),
    (1, "n_group topk_group num_expert_group"),
)
SIZE = {name: size for size, names in SIZES for name in names.split()}
DEPTHS = {name for size, names in SIZES[:2] for name in names.split()}
"""Names of integers in configurations, and what becomes of them."""
MAMBA = {"mamba_n_heads": 4, "mamba_d_head": 16}
CHANGES: dict[str, dict[str, object]] = {
    "bamba": {**MAMBA, "attn_layer_indices": [1]},
    "blt": {"encoder_hash_byte_group_vocab": 64},
    "dbrx": {"attn_config": {"kv_n_heads": 2, "rope_theta": 10_000.0, "clip_qkv": 8.0}},
    "dots1": {"n_shared_experts": 1},
    "falcon_h1": MAMBA,
    "gemma3n_text": {
        "num_hidden_layers": 4,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "num_kv_shared_layers": 2,
        "intermediate_size": [64] * 4,
        "activation_sparsity_pattern": [0.0] * 4,
    },
    "granitemoehybrid": {**MAMBA, "layer_types": ["linear_attention", "full_attention"]},
    "hrm_text": {"num_hidden_layers": 16},
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "mamba2": {"head_dim": 16, "n_groups": 1},
    "mllama": {"cross_attention_layers": [1]},
    "reformer": {"axial_pos_embds_dim": [16, 16], "axial_pos_shape": [16, 16], "attn_layers": ["local", "lsh"]},
    "roc_bert": {"pronunciation_vocab_size": 8, "shape_vocab_size": 8},
    "xmod": {"default_language": "en_XX"},
    "zamba2": {"attention_hidden_size": 64},
}
ENCODERS = {
    *("bert", "bert-generation", "big_bird", "camembert", "data2vec-text", "electra", "ernie", "megatron-bert"),
    *("reformer", "rembert", "roberta", "roberta-prelayernorm", "roc_bert", "roformer", "xlm-roberta"),
    *("xlm-roberta-xl", "xmod"),
}
"""Families of encoders that can be told to decode."""
UNBUILT = {
    "cohere_compass_text": "rotary positions of a kind of layer that it does not have by default",
    "dots3_note_text": "stays large",
    "gemma3n": "needs timm",
    "gemma4_assistant": "drafts for another model",
    "gemma4_unified_assistant": "drafts for another model",
    "qwen4_exp_text": "lacks sizes by default",
    "zamba": "ties weights of layers that it does not have if it is small",
}


def families() -> list[str]:
    """All that can be built but those of a text model within another, which is a family of its own."""
    kinds = {name: CONFIG_MAPPING[name] for name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES if name not in UNBUILT}
    return [name for name, kind in kinds.items() if MODEL_FOR_CAUSAL_LM_MAPPING[kind].config_class is kind]


def shrunk(family: str, **changes: object) -> PreTrainedConfig:
    """A tiny configuration: two layers, of two kinds where there are such, and windows of ``WINDOW`` tokens."""
    kind = CONFIG_MAPPING[family]
    decoder = {"is_decoder": True} if family in ENCODERS else {}
    return kind(**{**_small(kind()), **decoder, **CHANGES.get(family, {}), **changes})


def _small(config: PreTrainedConfig) -> dict[str, object]:
    stated, values = config.to_dict(), {}
    depth = max((n for name, n in stated.items() if name in DEPTHS and isinstance(n, int)), default=0)
    for name, value in stated.items():
        if isinstance(value, dict) and isinstance(part := getattr(config, name), PreTrainedConfig):
            values[name] = _small(part)
        elif name in SIZE and (value is None or (type(value) is int and value > 0)):
            values[name] = min(SIZE[name], value or SIZE[name])
        elif isinstance(value, list) and len(value) == depth > LAYERS and not name.startswith("_"):
            kinds = list(dict.fromkeys(value)) if isinstance(value[0], str) else value
            values[name] = (kinds * LAYERS)[:LAYERS]
    if "kv_lora_rank" in stated:  # latent attention, of as many keys as queries
        values["num_key_value_heads"] = SIZE["num_attention_heads"]
    always = {"bos_token_id": 1, "pad_token_id": 0, "eos_token_id": None, "forced_eos_token_id": None}
    always["tie_word_embeddings"] = False  # else many a random model repeats its last token
    return values | {name: value for name, value in always.items() if name in stated}


def tiny(family: str, **changes: object) -> PreTrainedModel:
    """A random model of a family, with weights wide enough that its greedy output varies.

    Args:
        changes: of its configuration.
    """
    config = shrunk(family, **changes)
    torch.manual_seed(0)
    model = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)](config).eval().float()
    with torch.no_grad():
        for weights in model.parameters():
            if weights.ndim > 1:
                weights.normal_(0.0, 0.3)
    return model

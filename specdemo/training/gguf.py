"""``python -m specdemo.training.gguf OUT``: a pair and its head as GGUF files, for llama.cpp and its users.

Needs the package ``gguf`` (``pip install gguf``), which comes with the tests' requirements and not with the app's.
A head's file is as llama.cpp reads it with ``--spec-type draft-eagle3`` (``models/eagle3.cpp``): it has the
target's tokenizer and, where the head has neither, takes embeddings from the target it is loaded beside.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import gguf
import torch
from tokenizers import pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from specdemo.errors import PairError
from specdemo.files import written_whole
from specdemo.models.eagle3_head import Eagle3Head
from specdemo.models.source import ASSETS
from specdemo.training.tasks.tokenizer import cut

TYPES = {
    "float32": (gguf.GGMLQuantizationType.F32, gguf.LlamaFileType.ALL_F32),
    "bfloat16": (gguf.GGMLQuantizationType.BF16, gguf.LlamaFileType.MOSTLY_BF16),
    "Q8_0": (gguf.GGMLQuantizationType.Q8_0, gguf.LlamaFileType.MOSTLY_Q8_0),
}
"""The types that the matrices can have; vectors are always float32."""

CUTS = {
    "viking": pre_tokenizers.Sequence(cut()),
    "starcoder": pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    ),
}
"""llama.cpp's name → how a tokenizer cuts text before merging: those of now, and those of the shipped pair."""
ARCHITECTURES = {"llama": gguf.MODEL_ARCH.LLAMA, "qwen3": gguf.MODEL_ARCH.QWEN3}
"""The model types of transformers that are written."""
HEAD_ONLY = {"fc.weight": "fc.weight", "model.layers.0.hidden_norm.weight": "blk.0.attn_norm_2.weight"}
"""llama.cpp's names of what a head has and a Llama model has not."""


def write_pair(pair: Path, out: Path, kind: str) -> list[Path]:
    """Write ``target.gguf``, and ``draft.gguf`` and ``head.gguf`` where the pair's folder has such folders.

    Raises:
        OSError: the folder holds no target.
        ValueError, PairError: llama.cpp cannot run a part of the pair.
    """
    out.mkdir(parents=True, exist_ok=True)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(pair / "target")
    target = _read(pair / "target")
    written = [out / "target.gguf"]
    write_model(written[0], target, tokenizer, kind)
    if (pair / "draft").is_dir():
        written.append(out / "draft.gguf")
        write_model(written[-1], _read(pair / "draft"), tokenizer, kind)
    if (pair / "head").is_dir():
        written.append(out / "head.gguf")
        write_head(written[-1], Eagle3Head.load(pair / "head", target), tokenizer, kind)
    return written


def _read(folder: Path) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)


def write_model(
    path: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, kind: str = "float32"
) -> None:
    """Write one model with its tokenizer.

    Args:
        path: of the file; a file that is there is replaced once the new one is whole.
        model: a Llama or Qwen3 causal LM.
        tokenizer: one of this project's: byte-level BPE whose digits are tokens one by one.
        kind: the matrices' type, one of ``TYPES``.

    Raises:
        ValueError: another architecture or another tokenizer; llama.cpp would read other tokens from it.
    """
    config = model.config
    if config.model_type not in ARCHITECTURES:
        raise ValueError(f"{config.model_type} models are not written; give one of {', '.join(ARCHITECTURES)}.")
    architecture = ARCHITECTURES[config.model_type]
    with gguf_file(path, gguf.MODEL_ARCH_NAMES[architecture], kind) as writer:
        add_shape(writer, config, config.num_hidden_layers, config.vocab_size)
        add_tokenizer(writer, tokenizer, config.vocab_size)
        # Without an output layer llama.cpp takes the embeddings.
        tied = {"lm_head.weight"} if config.tie_word_embeddings else set()
        weights = {name: weight for name, weight in model.state_dict().items() if name not in tied}
        add_weights(writer, weights, config, config.num_hidden_layers, kind)


def unsupported_reason(head: Eagle3Head) -> str | None:
    """Why llama.cpp cannot run this head; None if it can."""
    config, layer = head.config, head.config.layer
    for wrong, reason in (
        (
            len(head.aux_layers) != 3,
            f"it reads {len(head.aux_layers)} of the target's layers, and llama.cpp takes three",
        ),
        (layer.model_type != "llama", f"its layer is of kind {layer.model_type}, and llama.cpp takes llama"),
        (config.norm_before_fc or config.fc_norm, "it has norms before fc"),
        (not config.norm_before_head or config.feeds_norm, "its draft steps read another state"),
        (layer.attention_bias or layer.mlp_bias, "its layer has biases"),
        ((layer.rope_parameters or {}).get("rope_type") != "default", "its rotary positions are scaled"),
    ):
        if wrong:
            return reason
    return None


def write_head(path: Path, head: Eagle3Head, tokenizer: PreTrainedTokenizerBase, kind: str = "float32") -> None:
    """Write one head.

    Args:
        path: of the file; a file that is there is replaced once the new one is whole.
        head: as :meth:`specdemo.Eagle3Head.load` gives it.
        tokenizer: the target's; one of this project's.
        kind: the matrices' type, one of ``TYPES``.

    Raises:
        ValueError: llama.cpp cannot run it.
    """
    reason = unsupported_reason(head)
    if reason:
        raise ValueError(f"llama.cpp cannot run this head: {reason}.")
    config = head.config
    with gguf_file(path, "eagle3", kind) as writer:
        add_shape(writer, config.layer, 1, config.vocabulary)
        writer.add_array("eagle3.target_layers", list(head.aux_layers))
        writer.add_uint32("eagle3.target_hidden_size", config.target_width)
        writer.add_bool("eagle3.norm_before_residual", config.norm_before_residual)
        add_tokenizer(writer, tokenizer, config.vocabulary)
        weights = {}
        for name, weight in head.named_parameters():
            name = f"model.{name}" if name.startswith(("norm", "embed_tokens", "midlayer")) else name
            weights[name.replace("midlayer", "layers.0")] = weight
        add_weights(writer, weights, config.layer, 1, kind)
        if head.translates():
            writer.add_tensor("d2t", head.target_ids.cpu().numpy(), raw_dtype=gguf.GGMLQuantizationType.I64)


@contextmanager
def gguf_file(path: Path, architecture: str, kind: str) -> Iterator[gguf.GGUFWriter]:
    """A writer whose file stands at ``path`` once the block has ended well.

    Args:
        path: a file that is there is replaced.
        architecture: llama.cpp's name of it.
        kind: the matrices' type, one of ``TYPES``.
    """
    with written_whole(path) as partial:
        writer = gguf.GGUFWriter(partial, architecture)
        writer.add_file_type(TYPES[kind][1])
        yield writer
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


def add_shape(writer: gguf.GGUFWriter, config: PreTrainedConfig, blocks: int, vocabulary: int) -> None:
    """Add the shape of ``blocks`` decoder layers of Llama's kind, with a vocabulary of so many tokens."""
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(blocks)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_rope_dimension_count(head)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(vocabulary)


def add_weights(
    writer: gguf.GGUFWriter, weights: Mapping[str, torch.Tensor], config: PreTrainedConfig, blocks: int, kind: str
) -> None:
    """Add weights under llama.cpp's names, matrices in the type ``kind``; ``config`` is that of their layers."""
    names = gguf.get_tensor_name_map(ARCHITECTURES[config.model_type], blocks)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for name, weight in weights.items():
        array = weight.detach().float().cpu()
        rotated = heads.get(name.removesuffix(".weight").rpartition(".")[2])
        if rotated and config.model_type == "llama":
            # llama.cpp rotates a head by neighbouring pairs, transformers by halves.
            array = array.view(rotated, 2, -1, array.shape[1]).transpose(1, 2).reshape(array.shape)
        stored = TYPES[kind][0] if array.ndim > 1 else gguf.GGMLQuantizationType.F32
        theirs = HEAD_ONLY.get(name) or names.get_name(name, try_suffixes=(".weight", ".bias"))
        if theirs is None:
            raise ValueError(f"llama.cpp has no name for the weight {name}.")
        writer.add_tensor(theirs, gguf.quants.quantize(array.numpy(), stored), raw_dtype=stored)


def add_tokenizer(writer: gguf.GGUFWriter, tokenizer: PreTrainedTokenizerBase, size: int) -> None:
    """Add one of this project's tokenizers, for a model of ``size`` rows of embeddings.

    Raises:
        ValueError: another kind of tokenizer.
    """
    ours = tokenizer.backend_tokenizer
    state = json.loads(ours.to_str())
    theirs = [name for name, cut in CUTS.items() if cut.__getstate__() == ours.pre_tokenizer.__getstate__()]
    if not theirs or state["model"]["type"] != "BPE":
        raise ValueError(
            "this tokenizer cuts text in another way than llama.cpp would; give one of this project's."
        )
    special = set(tokenizer.added_tokens_decoder)
    # llama.cpp wants a text for every row of the embeddings.
    texts = {index: text for text, index in tokenizer.get_vocab().items()}
    rows = range(size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(theirs[0])
    writer.add_token_list([texts.get(row, f"<|unused {row}|>") for row in rows])
    normal, control, unused = gguf.TokenType.NORMAL, gguf.TokenType.CONTROL, gguf.TokenType.UNUSED
    writer.add_token_types([control if r in special else normal if r in texts else unused for r in rows])
    writer.add_token_merges([" ".join(pair) for pair in state["model"]["merges"]])
    writer.add_bos_token_id(tokenizer.bos_token_id)
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_pad_token_id(tokenizer.pad_token_id)
    writer.add_add_bos_token(True)
    if tokenizer.chat_template:
        writer.add_chat_template(tokenizer.chat_template)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m specdemo.training.gguf", description=__doc__)
    parser.add_argument("out", type=Path, help="folder for target.gguf, draft.gguf and head.gguf")
    parser.add_argument(
        "--pair", type=Path, default=ASSETS / "builtin", help="folder of target/ and, if there, draft/ and head/"
    )
    parser.add_argument("--type", choices=TYPES, default="float32", help="of the matrices (float32)")
    args = parser.parse_args()
    try:
        written = write_pair(args.pair, args.out, args.type)
    except (OSError, ValueError, PairError) as error:
        parser.error(f"--pair: {error}")
    for path in written:
        print(f"{path}: {path.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()

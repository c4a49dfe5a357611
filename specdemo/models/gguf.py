"""GGUF models of a pair: which files are meant, and what their headers say before llama.cpp is started."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from specdemo.errors import PairError
from specdemo.models.compatibility import TokenizerMatch
from specdemo.models.gguf_header import GgufHeader, NeedsMore, read_header
from specdemo.models.hub import Checkpoint
from specdemo.models.progress import LoadProgress

CONTEXT = 8192
"""Tokens that prompt and output of a lane have together, where a model reads more: its KV cache is reserved."""
LANES = 2
"""Servers whose working memory is counted; all of them share the weights, which are mapped."""
UBATCH = 512
"""Tokens of a prompt that llama.cpp reads at once; buffers hold their logits and states."""
FIRST_BYTES, MOST_BYTES = 2**22, 2**28
"""Of a file, to find its header in; vocabularies take a few MB."""
HEAD = "eagle3"
BLOCKS = ("dflash", "dspark")
"""Architectures that draft a block beside a target, and are not run here."""
PART = re.compile(r"-(\d{5})-of-(\d{5})(?=\.gguf$)", re.IGNORECASE)
PROJECTORS = re.compile(r"mmproj|imatrix", re.IGNORECASE)
MOST_NAMED = 6
EXTRA_TOKENS, OWN_TOKENS = 128, 5
"""llama.cpp takes vocabularies for one that differ in so many tokens at the end, and in the first few."""


def files_of(checkpoint: Checkpoint) -> list[str]:
    """The files of the model that its source names: one, or all parts in order; a PairError for another number."""
    wanted, place = checkpoint.source.file or "", checkpoint.source.name
    models = sorted(n for n in checkpoint.sizes if n.lower().endswith(".gguf") and not PROJECTORS.search(n))
    firsts = [n for n in models if (part := PART.search(n)) is None or int(part[1]) == 1]
    if wanted in checkpoint.sizes:
        found = [wanted]
    else:  # a quantisation stands at the end of a name, or is the name of a folder
        end = re.compile(rf"(^|[-._/]){re.escape(wanted)}([-_.]\d{{5}}-of-\d{{5}})?(\.gguf|/)", re.IGNORECASE)
        found = [n for n in firsts if not wanted or end.search(n)]
    if len(found) != 1:
        listed = ", ".join([*dict.fromkeys((*found, *firsts))][:MOST_NAMED]) or "none"
        said = f"has no GGUF file {wanted!r:.80}" if wanted and not found else "has not one GGUF model"
        raise PairError(
            f"{place} {said} ({listed}); name one file with its folder, or on the hub owner/repo:FILE or "
            "owner/repo:Q4_K_M."
        )
    if (part := PART.search(found[0])) is None:
        return found
    names = [PART.sub(f"-{n:05}-of-{part[2]}", found[0]) for n in range(1, int(part[2]) + 1)]
    if lost := [n for n in names if n not in checkpoint.sizes]:
        raise PairError(f"{place} is incomplete: {lost[0]} is missing; put all parts into one folder.")
    return names


def headers_of(checkpoint: Checkpoint, names: Sequence[str], progress: LoadProgress) -> list[GgufHeader]:
    """The header of each part, a PairError if one is broken; of the hub's files only beginnings are fetched."""
    found = []
    for name in names:
        size, nbytes, shown, header = checkpoint.sizes[name], FIRST_BYTES, PurePosixPath(name).name, None
        while header is None:
            progress.check()
            try:
                header = read_header(checkpoint.beginning(name, nbytes), shown)
            except NeedsMore:
                if nbytes >= min(size, MOST_BYTES):
                    raise PairError(f"{shown} is cut short: it ends inside its header; fetch it again.") from None
                nbytes *= 8
        if size < header.end:
            raise PairError(f"{shown} is cut short: it has {size:,} of {header.end:,} bytes; fetch it again.")
        found.append(header)
    return found


def check_model(role: str, header: GgufHeader, name: str) -> None:
    """Refuse what is no language model: adapters, projectors, embeddings without a vocabulary."""
    kind = header.text("general.type")
    generates = header.tokens and header.whole("block_count") and header.architecture not in BLOCKS
    if kind not in ("", "model") or not generates:
        what = kind or header.architecture or "unknown"
        raise PairError(f"{role}: {name} is no language model but {what!r:.60}; give one that generates text.")


def check_head(head: GgufHeader, target: GgufHeader, name: str) -> None:
    """Refuse a head that was made for a target of another width."""
    width = target.whole("embedding_length")
    if (made_for := head.whole("target_hidden_size", width)) != width:
        why = f"{name} was made for a target of width {made_for}, and this one's is {width}"
        raise PairError(f"head: {why}; give the head of this target.")


def working_bytes(header: GgufHeader, vocabulary: int) -> int:
    """Bytes of the KV caches of ``LANES`` servers, and of their buffers for what they compute."""
    wide = vocabulary + 4 * header.whole("embedding_length") + 2 * header.whole("feed_forward_length")
    return LANES * (kv_bytes(header) * context_of(header) + 4 * UBATCH * wide)


def kv_bytes(header: GgufHeader) -> int:
    """Bytes of the KV cache of a token, in 16 bit."""
    heads, layers = header.whole("attention.head_count", 1), header.whole("block_count")
    keys = header.fields.get(f"{header.architecture}.attention.head_count_kv", heads)
    total = sum(keys) if isinstance(keys, list) else (keys if isinstance(keys, int) else heads) * layers
    width = header.whole("embedding_length") // max(heads, 1)
    widths = header.whole("attention.key_length", width) + header.whole("attention.value_length", width)
    return 2 * total * widths


def context_of(header: GgufHeader) -> int:
    """The tokens that a lane of this model can have."""
    return min(header.whole("context_length", CONTEXT) or CONTEXT, CONTEXT)


def described(header: GgufHeader) -> str:
    """What the card says of a model besides its sizes."""
    if header.architecture == HEAD:
        return HEAD
    context, mtp = header.whole("context_length"), header.whole("nextn_predict_layers")
    trained = f"trained for {context:,} tokens" if context else ""
    chat = "chat template" if header.text("tokenizer.chat_template") else "no chat template"
    heads = f"{mtp} MTP layer{'s' * (mtp > 1)}" if mtp else ""
    return " · ".join(filter(None, (header.architecture, trained, chat, heads)))


def match_vocabularies(headers: Sequence[GgufHeader]) -> TokenizerMatch:
    """Whether llama.cpp can draft with the second model's vocabulary, by its own rule."""
    if len(headers) < 2:
        return TokenizerMatch("alone", "no draft model")
    target, draft = (header.tokens for header in headers[:2])
    if target == draft:
        return TokenizerMatch("same", "same vocabulary")
    shared = range(OWN_TOKENS, min(len(target), len(draft)))
    differs = next((f"differs from the target's at token {n:,}" for n in shared if target[n] != draft[n]), None)
    if differs is None and abs(len(target) - len(draft)) <= EXTRA_TOKENS:
        return TokenizerMatch("specials", "the vocabularies differ in a few special tokens only")
    why = differs or f"has {len(draft):,} tokens, the target's {len(target):,}"
    advice = "so llama.cpp cannot draft with it; take a smaller model of its family"
    return TokenizerMatch("refused", f"its vocabulary {why}, {advice}")

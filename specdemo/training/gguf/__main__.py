"""``python -m specdemo.training.gguf OUT``: a pair as GGUF files, for llama.cpp and its users.

Needs the package ``gguf`` (``pip install gguf``), which comes with the tests' requirements and not with the app's.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from specdemo.errors import PairError
from specdemo.models.eagle3_head import Eagle3Head
from specdemo.models.source import ASSETS
from specdemo.training.gguf.head import write_head
from specdemo.training.gguf.model import write_model
from specdemo.training.gguf.parts import TYPES


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

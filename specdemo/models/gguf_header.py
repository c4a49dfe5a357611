"""The header of a GGUF file: what a model is, by its own words, without its weights.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Everything in it is untrusted.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from dataclasses import dataclass
from typing import Any

from gguf import GGML_QUANT_SIZES

from specdemo.errors import PairError

NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Types of values that ``struct`` reads."""
TEXT, ARRAY = 8, 9
TENSORS = {int(kind): (kind.name, *sizes) for kind, sizes in GGML_QUANT_SIZES.items()}
"""Types of weights: the name, and how many weights take how many bytes."""


class NeedsMore(Exception):
    """The bytes end before the header does."""


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """What a file says of itself."""

    fields: dict[str, Any]  # as they are called there
    weights: int  # numbers in all of its tensors
    nbytes: int  # of them in the file
    kind: str  # the type that most of them have, such as ``Q4_K``; empty without any
    end: int  # where the last of them ends, in bytes from the file's beginning

    @property
    def architecture(self) -> str:
        """Such as ``llama``; ``eagle3`` of a head."""
        return str(self.fields.get("general.architecture", ""))

    def whole(self, name: str, default: int = 0) -> int:
        """A whole number of this architecture, such as ``context_length``; of a list, one a layer, the sum."""
        value = self.fields.get(f"{self.architecture}.{name}", default)
        if isinstance(value, list):
            return sum(n for n in value if isinstance(n, int))
        return value if isinstance(value, int) else default

    def text(self, name: str) -> str:
        value = self.fields.get(name)
        return value if isinstance(value, str) else ""

    @property
    def tokens(self) -> list[bytes]:
        found = self.fields.get("tokenizer.ggml.tokens")
        return found if isinstance(found, list) else []


def read_header(data: bytes, name: str) -> GgufHeader:
    """Read the header at the beginning of the file ``name``.

    NeedsMore: these bytes are not the whole of it; PairError: it is no GGUF file, or none that llama.cpp reads.
    """
    if data[:4] != b"GGUF":
        raise PairError(f"{name} is no GGUF file, or a pointer to one (git lfs pull fetches it); give one.")
    reader = _Reader(data, name)
    version, tensors, fields = reader.number("I"), reader.number("Q"), reader.number("Q")
    if version not in (2, 3):
        kind = "big-endian" if version > 0xFFFF else f"of version {version}"
        raise PairError(f"{name} is {kind}, which is not read here; convert its model anew with llama.cpp.")
    found = {}
    for _ in range(fields):
        key = reader.value(TEXT)
        found[key] = reader.value(reader.number("I"))
    kinds: Counter[str] = Counter()
    places = []
    for _ in range(tensors):
        reader.text()
        dimensions = reader.number("I")
        if dimensions > 8:
            raise reader.broken()
        count = math.prod(reader.number("Q") for _ in range(dimensions))
        kind, block, nbytes = TENSORS.get(reader.number("I"), ("other", 1, 0))
        kinds[kind] += count
        places.append((reader.number("Q"), -(-count // block) * nbytes))
    alignment = found.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1:
        raise reader.broken()
    begin = -(-reader.position // alignment) * alignment
    return GgufHeader(
        found,
        kinds.total(),
        sum(nbytes for _, nbytes in places),
        kinds.most_common(1)[0][0] if kinds else "",
        begin + max((offset + nbytes for offset, nbytes in places), default=0),
    )


@dataclass(slots=True)
class _Reader:
    data: bytes
    name: str
    position: int = 4

    def broken(self) -> PairError:
        return PairError(f"{self.name}: its header is broken; fetch the file again, or convert its model anew.")

    def take(self, count: int) -> bytes:
        begin, self.position = self.position, self.position + count
        if self.position > len(self.data):
            raise NeedsMore
        return self.data[begin : self.position]

    def number(self, code: str) -> Any:
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]

    def text(self) -> bytes:
        return self.take(self.number("Q"))

    def value(self, kind: int) -> Any:
        if kind in NUMBERS:
            return self.number(NUMBERS[kind])
        if kind == TEXT:
            return self.text().decode(errors="replace")
        inner, count = (self.number("I"), self.number("Q")) if kind == ARRAY else (ARRAY, 0)
        if inner == TEXT:
            return [self.text() for _ in range(count)]
        if inner not in NUMBERS:
            raise self.broken()
        code = NUMBERS[inner]
        data = self.take(count * struct.calcsize("<" + code))
        return list(struct.unpack(f"<{count}{code}", data))

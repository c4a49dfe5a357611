"""Classes of transformers for annotations: importing them takes two seconds, so not before there is a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import Cache, LlamaConfig, PreTrainedModel
else:
    Cache = LlamaConfig = PreTrainedModel = object

__all__ = ["Cache", "LlamaConfig", "PreTrainedModel"]

"""Networks: layers with their tensors and shapes, the catalogue's model files, and importers.

Imports only files and errors. `planner.model.netlist` reads model files, `planner.model.importers` reads
Hugging Face configurations, PyTorch modules and ONNX files.
"""

from planner.model._model import (
    BYTES_PER_ELEMENT,
    LONGEST_SEQUENCE,
    USUAL_TOKENS,
    AttentionShape,
    Block,
    Experts,
    Layer,
    Model,
    Tensor,
)

__all__ = [
    "BYTES_PER_ELEMENT",
    "LONGEST_SEQUENCE",
    "USUAL_TOKENS",
    "AttentionShape",
    "Block",
    "Experts",
    "Layer",
    "Model",
    "Tensor",
]

"""Local memory: sizes, lifetimes and addresses of the areas of a group (layer_group.md 9, 10.1)."""

from tpusim.layer_group.local_memory.allocation import allocate, overfull
from tpusim.layer_group.local_memory.reuse import able, partners, place
from tpusim.layer_group.local_memory.sizes import buffers, tensor_bytes

__all__ = [
    "able",
    "allocate",
    "buffers",
    "overfull",
    "partners",
    "place",
    "tensor_bytes",
]

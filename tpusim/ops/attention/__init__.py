"""A block of attention as one op: `top.Attention` and, for each head, `tpu.Attention` (numerics.md 11.5).

`top.py` lowers a block to one op per head and the sum of the heads; `tpu.py` computes a head as the chip does, and
`commands.py` emits its commands. `flash.py` has the op for all heads in 16 bits, `tpu.FAttention`.
"""

from tpusim.ops.attention.flash import TpuFAttention
from tpusim.ops.attention.top import TopAttention
from tpusim.ops.attention.tpu import TpuAttention

__all__ = ["TopAttention", "TpuAttention", "TpuFAttention"]

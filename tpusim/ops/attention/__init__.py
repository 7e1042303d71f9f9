"""A block of attention as one op: `top.Attention` and, for each head, `tpu.Attention` (numerics.md 11.5).

`pattern.py` finds the block in a calibrated module; `top.py` lowers it to a head each and their sum; `tpu.py` computes
a head as the chip, `commands.py` as commands. `flash.py` has the op of all heads in 16 bits, `tpu.FAttention`.
"""

from tpusim.ops.attention.flash import TpuFAttention
from tpusim.ops.attention.top import TopAttention
from tpusim.ops.attention.tpu import TpuAttention

__all__ = ["TopAttention", "TpuAttention", "TpuFAttention"]

"""Pooling: `top.MaxPool`, `top.AvgPool`, `tpu.Pool2D` and `tpu.Pool3D` (numerics.md 5.4, 9.6); 1-D as 2-D.

`top.py` has the top ops, their float functions and their lowering; `tpu.py` (2-D) and `volume.py` (3-D) compute as the
chip does, slice and emit commands.
"""

from tpusim.ops.pool.top import PoolTop, TopAvgPool, TopMaxPool
from tpusim.ops.pool.tpu import TpuPool2D
from tpusim.ops.pool.volume import TpuPool3D

__all__ = ["PoolTop", "TopAvgPool", "TopMaxPool", "TpuPool2D", "TpuPool3D"]

"""A whole layer as tiles: loads into local memory, the command there, and stores (layer_group.md DL-06).

`forms` says how a command over tensors of any rank is one over four axes of local memory, and along which of them it
may be cut; `cut` chooses how many pieces there are and where they lie, `attention` those of a block of attention.
None knows an op: only commands.
"""

from tpusim.isa.tiling.cut import tiles
from tpusim.isa.tiling.pieces import Piece, Transfer, Turn, turns_of

__all__ = ["Piece", "Transfer", "Turn", "tiles", "turns_of"]

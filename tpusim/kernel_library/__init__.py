"""The model of TPU-MLIR's kernel library: a whole layer as the commands that its kernel issues.

`tiles` makes loads into local memory, the command on them, and stores (layer_group.md DL-06). `forms` says how a
command over tensors of any rank becomes a command over four axes of local memory, and along which axes it may be cut:
a function for each class of commands, registered by `forms.form_of`. `cut` chooses the number of pieces and their
addresses; `attention` and `products` do so for a block of attention and for f32 matrices. `gathers` has the commands of
a window whose stride or dilation no command allows. The command itself gives its time in a tile (`tpusim.isa`).

The room knows commands, no ops. It imports `isa` and `chips` only.
"""

from tpusim.kernel_library.cut import tiles
from tpusim.kernel_library.pieces import Piece, Transfer, Turn, turns_of

__all__ = ["Piece", "Transfer", "Turn", "tiles", "turns_of"]

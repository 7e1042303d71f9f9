"""The model of TPU-MLIR's kernel library: a whole layer as the commands that its kernel issues.

`tiles` makes loads into local memory, the command there, and stores (layer_group.md DL-06). `forms` says how a command
over tensors of any rank is one over four axes of local memory, and along which of them it may be cut: a function for
each class of commands, registered by `forms.form_of`. `cut` chooses how many pieces there are and where they lie,
`attention` and `products` those of a block of attention and of f32 matrices, `gathers` the commands of a window whose
stride or dilation no command has. How long a command of a tile takes is of the command itself (`tpusim.isa`).

None knows an op: only commands. It imports `isa` and `chips` only.
"""

from tpusim.kernel_library.cut import tiles
from tpusim.kernel_library.pieces import Piece, Transfer, Turn, turns_of

__all__ = ["Piece", "Transfer", "Turn", "tiles", "turns_of"]

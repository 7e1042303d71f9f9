"""The model of TPU-MLIR's kernel library: a whole layer as the commands that its kernel issues.

`tiles` divides a command over whole tensors into tiles: loads into local memory, the command on local memory, a store
(layer_group.md DL-06). `forms` turns a command over tensors of any rank into a command over four axes and says along
which of them it may be cut; each class of commands has a function, registered by `forms.form_of`. `cut` chooses the
sizes of the tiles and their addresses; `attention` and `products` do so for a block of attention and for f32 matrices.
`gathers` has the commands of a window whose stride or dilation no command allows. The cycles of a tile are those of its
command (`tpusim.isa`).

The room knows commands, not ops. It imports `isa` and `chips` only.
"""

from tpusim.kernel_library.cut import tiles
from tpusim.kernel_library.pieces import Piece, Transfer, Turn, turns_of

__all__ = ["Piece", "Transfer", "Turn", "tiles", "turns_of"]

"""TIU, GDMA and global-kernel commands (docs/spec/codegen.md 3 and 4, mapping DC-04).

A command is frozen data. `id` counts per engine of a core from 1; `dep` is the id of the command of the same core's
*other* engine that must have finished before this one starts, 0 for none (DC-03, DC-08). Cores wait for each other by
messages. `op`, `step` and `group` say where a command came from.
Each docstring states the command's semantics, with the rounding of docs/spec/numerics.md; the machine implements them
in NumPy.
"""

from tpusim.isa.commands.arith import Arith
from tpusim.isa.commands.base import TILE, Command, Engine, Place, Source, TiuCommand, slice_owner, tile_step
from tpusim.isa.commands.channel_rescale import ChannelRescale
from tpusim.isa.commands.channel_scale import ChannelScale
from tpusim.isa.commands.compare import Compare, Relation
from tpusim.isa.commands.conv import Conv
from tpusim.isa.commands.depthwise import Depthwise
from tpusim.isa.commands.dequantize import Dequantize
from tpusim.isa.commands.fill import Fill, FillKind
from tpusim.isa.commands.float_lut import FloatLut
from tpusim.isa.commands.fn import Fn
from tpusim.isa.commands.global_kernel import GlobalKernel
from tpusim.isa.commands.host import HostCall
from tpusim.isa.commands.lane_copy import LaneCopy
from tpusim.isa.commands.lut import Lut
from tpusim.isa.commands.matmul import MatMul
from tpusim.isa.commands.messages import DmaSendMessage, DmaWaitMessage, SendMessage, WaitMessage
from tpusim.isa.commands.move import Move, TransferKind
from tpusim.isa.commands.move_rows import MoveRows
from tpusim.isa.commands.pick import Pick
from tpusim.isa.commands.pool import Pool
from tpusim.isa.commands.quantize import Quantize
from tpusim.isa.commands.requant import Requant, Rounding
from tpusim.isa.commands.rescale import Rescale
from tpusim.isa.commands.select import Select
from tpusim.isa.commands.where import Where

__all__ = [
    "Arith",
    "ChannelRescale",
    "ChannelScale",
    "Command",
    "Compare",
    "Conv",
    "Depthwise",
    "Dequantize",
    "DmaSendMessage",
    "DmaWaitMessage",
    "Engine",
    "Fill",
    "FillKind",
    "FloatLut",
    "Fn",
    "GlobalKernel",
    "HostCall",
    "LaneCopy",
    "Lut",
    "MatMul",
    "Move",
    "MoveRows",
    "Pick",
    "Place",
    "Pool",
    "Quantize",
    "Relation",
    "Requant",
    "Rescale",
    "Rounding",
    "Select",
    "SendMessage",
    "Source",
    "TILE",
    "TransferKind",
    "WaitMessage",
    "Where",
    "slice_owner",
    "tile_step",
    "TiuCommand",
]

"""`top.GridSampler` and `tpu.GridSampler`: an image sampled at computed positions (numerics.md 12.1)."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, ClassVar

from tpusim_kernels import grid as kernels
from typing_extensions import override
from xdsl.dialects.builtin import BoolAttr, IntegerAttr, StringAttr, TensorType, i8
from xdsl.ir import SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, result_def

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import flag, text
from tpusim.ir.types import element_of, shape_of, storage_dtype
from tpusim.isa import functions
from tpusim.isa.layout import align
from tpusim.ops.framework.base import Array, Builder, FloatMode, FloatRule, OpT, Shape, ShapedOp
from tpusim.ops.framework.building import names_op
from tpusim.ops.framework.macro import MacroTop, MacroTpu
from tpusim.ops.interfaces import GlobalBuffer, Room

F32_BYTES = 4


def _require_known(mode: str, padding: str) -> None:
    if mode not in kernels.MODES or padding not in kernels.PADDINGS:
        known = f"{', '.join(kernels.MODES)} with {', '.join(kernels.PADDINGS)}"
        raise ValueError(f"{known} are required, got {mode!r} with {padding!r}")


class GridSampler(ShapedOp):
    """`input` (n, c, ...) at the positions of `grid` (n, ..., coordinates in [-1, 1]).

    It is computed in float64 and rounded once, to the type of the result.
    """

    input = operand_def(TensorType)
    grid = operand_def(TensorType)
    output = result_def(TensorType)
    mode = attr_def(IntegerAttr | StringAttr)
    padding_mode = attr_def(IntegerAttr | StringAttr)
    align_corners = attr_def(BoolAttr)
    CODES: ClassVar[Mapping[str, tuple[str, ...]]] = {"mode": ("linear", "nearest"), "padding_mode": kernels.PADDINGS}

    @property
    def options(self) -> dict[str, Any]:
        """Parameters of the kernel and of the macro function."""
        corners = bool(self.align_corners.value.data)
        return {"mode": self.word("mode"), "padding": self.word("padding_mode"), "align_corners": corners}

    @override
    def infer(self) -> tuple[Shape, ...]:
        """The channels of the image and the extents of the grid."""
        _require_known(self.word("mode"), self.word("padding_mode"))
        x, grid = shape_of(self.input), shape_of(self.grid)
        if len(x) < 3 or len(grid) != len(x) or grid[0] != x[0] or grid[-1] != len(x) - 2:
            raise ValueError(f"a grid (n, ..., {len(x) - 2}) for {x} is required, got {grid}")
        return ((*x[:2], *grid[1:-1]),)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return (kernels.grid_sample(operands[0], operands[1], **self.options),)


@irdl_op_definition
class TpuGridSampler(GridSampler, MacroTpu, GlobalBuffer):
    """`tpu.GridSampler`: an image sampled along a grid."""

    name = "tpu.GridSampler"

    @override
    def function(self) -> functions.Function:
        return functions.GridSample(**self.options)

    @override
    def global_buffer(self, chip: ChipSpec) -> Room | None:
        """For each place of the grid an offset along every axis in f32, and a weight for every corner of its cell."""
        batch, _, *places = shape_of(self.output)
        axes, size = len(places), storage_dtype(element_of(self.output)).itemsize
        bytes_of_place = axes * F32_BYTES + 2**axes * size
        return Room((batch * align(prod(places), chip.lanes) * bytes_of_place,), i8)


@irdl_op_definition
class TopGridSampler(GridSampler, MacroTop):
    """`top.GridSampler`: an image sampled along a grid."""

    name = "top.GridSampler"
    TPU: ClassVar[OpT] = TpuGridSampler
    FLOAT: ClassVar[FloatRule] = FloatRule(bf16="f32")

    @classmethod
    @names_op
    def make(
        cls, builder: Builder, x: SSAValue, grid: SSAValue, *, mode: str = "linear", padding_mode: str = "zeros",
        align_corners: bool = False, name: str,
    ) -> SSAValue:  # fmt: skip
        """mode: nearest, linear or cubic. padding_mode: zeros, border or reflection."""
        _require_known(mode, padding_mode)
        attributes = {
            "mode": text(mode), "padding_mode": text(padding_mode), "align_corners": flag(align_corners)
        }  # fmt: skip
        return builder.build(cls, [x, grid], attributes, name)

    @override
    def needs_f32(self, chip: ChipSpec, wanted: FloatMode) -> bool:
        """All modes but linear (numerics.md 12.2)."""
        del chip, wanted
        return self.word("mode") != "linear"

"""Work areas of ops in local memory, in 32-bit words (layer_group.md 9.3)."""

from collections.abc import Sequence

from typing_extensions import override

from tpusim.chips import ChipSpec
from tpusim.interfaces import Model
from tpusim.ir.types import element_of, shape_of, storage_dtype, uniform_of
from tpusim.isa.layout import align, ceil_div, lmem_bytes, word_bytes
from tpusim.ops.activation.slope import TpuLeakyRelu, TpuPRelu
from tpusim.ops.activation.tpu import FloatFunction, TpuLut
from tpusim.ops.add import TpuAdd
from tpusim.ops.cast import TpuCast
from tpusim.ops.const_binary.tpu import ConstTpu
from tpusim.ops.conv.tpu import TpuConv2D
from tpusim.ops.deconv.tpu import TpuDeconv
from tpusim.ops.framework.logical import TensorSlice, logical_shape
from tpusim.ops.groupnorm import GroupedTpu
from tpusim.ops.interfaces import WorkArea
from tpusim.ops.mul import TpuMul
from tpusim.ops.norm.tpu import TpuScale
from tpusim.ops.rescale import TpuMulShift
from tpusim.ops.sub import TpuSub
from tpusim.targets.bm1684.target import TARGET

_COPIES = dict.fromkeys(("EXP", "ABSVAL", "LN", "TANH", "ARCCOS", "ARCTANH", "SQRT", "SIGMOID"), 1) | {
    **dict.fromkeys(("ELU", "FLOOR", "GELU", "SILU", "SIGN", "SOFT_PLUS"), 2),
    **dict.fromkeys(("COS", "SIN"), 3),
    "SQUARE": 0,
}
"""The number of copies of its operand, in words, that a function needs."""
MAX_PLANE = 2047
"""The largest extent of a plane that one float convolution reads."""


@TARGET.attach(FloatFunction, WorkArea)
class Functions(Model[FloatFunction], WorkArea):
    """The work area of functions of one operand."""

    @override
    def buffer_bytes(self, chip: ChipSpec, output: TensorSlice, inputs: Sequence[TensorSlice | None]) -> int:
        """In float, the copies of `_COPIES` (layer_group.md 9.3)."""
        copies = _COPIES.get(self.op.function[0]) if uniform_of(self.op.output) is None else 0
        if copies is None:
            return self.op.buffer_bytes(chip, output, inputs)
        assert inputs[0] is not None  # the operand is a tensor
        return copies * word_bytes(inputs[0].shape, 1, chip)


@TARGET.attach(TpuLut, WorkArea)
class Tables(Model[TpuLut], WorkArea):
    """The work area of lookup tables."""

    @override
    def buffer_bytes(self, chip: ChipSpec, output: TensorSlice, inputs: Sequence[TensorSlice | None]) -> int:
        """Two words for every place of the whole batch (layer_group.md 9.3)."""
        del inputs
        whole = logical_shape(shape_of(self.op.output))[0]
        return 2 * whole * word_bytes((1, *output.shape[1:]), 1, chip)


@TARGET.attach(TpuLeakyRelu, WorkArea)
class LeakyRelus(Model[TpuLeakyRelu], WorkArea):
    """The work area of tpu.LeakyRelu."""

    @override
    def buffer_bytes(self, chip: ChipSpec, output: TensorSlice, inputs: Sequence[TensorSlice | None]) -> int:
        """A copy of the operand; planes of bytes begin at multiples of a vector (layer_group.md 9.3)."""
        del output
        assert inputs[0] is not None  # the operand is a tensor
        n, c, h, w = inputs[0].shape
        if uniform_of(self.op.output) is None:
            return word_bytes((n, c, h, w), 1, chip)
        return align(n, 4) * ceil_div(c, chip.lanes) * align(h * w, chip.eu_bytes)


@TARGET.attach(TpuPRelu, WorkArea)
class PRelus(Model[TpuPRelu], WorkArea):
    """The work area of tpu.PReluOp."""

    @override
    def buffer_bytes(self, chip: ChipSpec, output: TensorSlice, inputs: Sequence[TensorSlice | None]) -> int:
        """A copy of the operand (layer_group.md 9.3)."""
        del output
        assert inputs[0] is not None  # the operand is a tensor
        return word_bytes(inputs[0].shape, 1 if uniform_of(self.op.output) is None else 4, chip)


@TARGET.attach(TpuCast, WorkArea)
class Casts(Model[TpuCast], WorkArea):
    """The work area of tpu.Cast."""

    @override
    def buffer_bytes(self, chip: ChipSpec, output: TensorSlice, inputs: Sequence[TensorSlice | None]) -> int:
        """Two copies of an f32 operand; a word for each byte that is cast to f32 (layer_group.md 9.3)."""
        del output
        source, target = (storage_dtype(element_of(value)) for value in (self.op.input, self.op.output))
        assert inputs[0] is not None  # the operand is a tensor
        if source.name == "float32":
            return 2 * word_bytes(inputs[0].shape, 1, chip)
        return word_bytes(inputs[0].shape, 4, chip) if target.name == "float32" and source.itemsize == 1 else 0


@TARGET.attach(TpuSub, WorkArea)
class Differences(Model[TpuSub], WorkArea):
    """The work area of differences of tensors."""

    @override
    def buffer_bytes(self, chip: ChipSpec, output: TensorSlice, inputs: Sequence[TensorSlice | None]) -> int:
        """Two operands and the result, 16 bits each (layer_group.md 9.3)."""
        del inputs
        return 0 if self.op.scaling is None else 3 * word_bytes(output.shape, 2, chip)


@TARGET.attach(TpuMulShift, WorkArea)
class Rescales(Model[TpuMulShift], WorkArea):
    """The work area of a multiplication and shift."""

    @override
    def buffer_bytes(self, chip: ChipSpec, output: TensorSlice, inputs: Sequence[TensorSlice | None]) -> int:
        """The operand in 16 bits (layer_group.md 9.3)."""
        del output
        assert inputs[0] is not None  # the operand is a tensor
        return word_bytes(inputs[0].shape, 2, chip)


@TARGET.attach(TpuScale, WorkArea)
class Scales(Model[TpuScale], WorkArea):
    """The work area of tpu.Scale."""

    @override
    def buffer_bytes(self, chip: ChipSpec, output: TensorSlice, inputs: Sequence[TensorSlice | None]) -> int:
        """Integers: the operand in 16 bits (layer_group.md 9.3)."""
        del output
        assert inputs[0] is not None  # the operand is a tensor
        return 0 if uniform_of(self.op.output) is None else word_bytes(inputs[0].shape, 2, chip)


@TARGET.attach(TpuConv2D, WorkArea)
class Convolutions(Model[TpuConv2D], WorkArea):
    """The work area of tpu.Conv2D."""

    @override
    def buffer_bytes(self, chip: ChipSpec, output: TensorSlice, inputs: Sequence[TensorSlice | None]) -> int:
        """In float: the result of depthwise convolutions and of planes above 2047, in parts of up to 2047 (9.3)."""
        x = inputs[0]
        if self.op.integer or x is None:
            return 0
        g = self.op.geometry
        (top, left, bottom, right), (n, _, h, w) = g["pads"], x.shape
        padded = h + top + bottom, w + left + right
        if not self.op.depthwise and max(padded) <= MAX_PLANE:
            return 0
        rows, columns = (
            (min(size, MAX_PLANE) - reach) // stride + 1
            for size, reach, stride in zip(padded, self.op.reach, g["strides"], strict=True)
        )
        return word_bytes((n, output.shape[1], rows, columns), 1, chip)


@TARGET.attach(TpuAdd, WorkArea)
class Sums(Model[TpuAdd], WorkArea):
    """The work area of sums of tensors."""

    @override
    def buffer_bytes(self, chip: ChipSpec, output: TensorSlice, inputs: Sequence[TensorSlice | None]) -> int:
        """Two operands and the result, 16 bits each (layer_group.md 9.3)."""
        if self.op.multipliers is None:
            return 0
        used = 2 * lmem_bytes(output.shape, self.op.work_type, chip)
        return max(used, 3 * word_bytes(output.shape, 2, chip))


@TARGET.attach(TpuMul, WorkArea)
class Products(Model[TpuMul], WorkArea):
    """The work area of products of tensors."""

    @override
    def buffer_bytes(self, chip: ChipSpec, output: TensorSlice, inputs: Sequence[TensorSlice | None]) -> int:
        """Integers: the products, or two copies of the result for its requant, if larger (layer_group.md 9.3)."""
        del inputs
        if self.op.scaling is None:
            return 0
        used = lmem_bytes(output.shape, self.op.work_type, chip)
        return max(used, 0 if self.op.scaling == (1, 0) else 2 * lmem_bytes(output.shape, "i8", chip))


@TARGET.attach(ConstTpu, WorkArea)
class OpsOfANumber(Model[ConstTpu], WorkArea):
    """The work area of ops of a tensor and a number."""

    @override
    def buffer_bytes(self, chip: ChipSpec, output: TensorSlice, inputs: Sequence[TensorSlice | None]) -> int:
        """Integers: products, sums and differences take one image in words for every two rows (layer_group.md 9.3)."""
        if self.op.scaling is None or inputs[0] is None:
            return 0
        used = 0 if self.op.KIND == "mul" else self.op.buffer_bytes(chip, output, inputs)
        if self.op.KIND in ("max", "min"):
            return used
        _, c, h, w = inputs[0].shape
        return max(used, ceil_div(h, 2) * word_bytes((1, c, h, w), 1, chip))


@TARGET.attach(GroupedTpu, WorkArea)
class GroupNorms(Model[GroupedTpu], WorkArea):
    """The work area of GroupNorm and InstanceNorm."""

    @override
    def buffer_bytes(self, chip: ChipSpec, output: TensorSlice, inputs: Sequence[TensorSlice | None]) -> int:
        """A copy of the input and three vectors of each row of lanes (layer_group.md 9.3)."""
        del inputs
        n, c, _, _ = output.shape
        return word_bytes(output.shape, 1, chip) + 3 * word_bytes((n, c, 1, 1), 1, chip)


@TARGET.attach(TpuDeconv, WorkArea)
class TransposedConvolutions(Model[TpuDeconv], WorkArea):
    """Transposed convolutions need no work area (layer_group.md 9.3)."""

    @override
    def buffer_bytes(self, chip: ChipSpec, output: TensorSlice, inputs: Sequence[TensorSlice | None]) -> int:
        del chip, output, inputs
        return 0

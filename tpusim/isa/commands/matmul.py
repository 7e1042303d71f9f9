"""Matrix product (MM2): its command, legality and cycles."""

from math import prod

from tpusim.chips import ChipSpec
from tpusim.isa.commands.base import Command, Need
from tpusim.isa.commands.requant import Requant
from tpusim.isa.finding import Finding
from tpusim.isa.layout import ceil_div, product_bytes
from tpusim.isa.matrices import lane_columns, row_steps
from tpusim.isa.multiplications import of_product
from tpusim.isa.region import View, itemsize
from tpusim.isa.steps import accumulated, array


def matrix_shape(view: View, transpose: bool) -> tuple[int, int]:
    """(rows, columns) of a matmul operand: the last two axes in GMEM, c and h*w of a laned view."""
    rows, columns = (view.shape[1], view.shape[2] * view.shape[3]) if view.laned else view.shape[-2:]
    return (columns, rows) if transpose else (rows, columns)


def matrices(command: "MatMul", chip: ChipSpec) -> Finding | None:
    """A matrix product takes (..., M, K) and (..., K, N) and gives (..., M, N); its bias has N elements.

    Several requants are one for each right matrix, and so are their biases of N elements. Multipliers are N int32.
    Partial sums are f32 and have the layout of the result.
    """
    if min(len(command.left.shape), len(command.right.shape), len(command.output.shape)) < 2:
        return Finding("matrices of two axes or more", "a vector", "add an axis of length 1")
    rows, inner = matrix_shape(command.left, command.left_transpose)
    depth, columns = matrix_shape(command.right, command.right_transpose)
    batch = max(view.elements // (prod(matrix_shape(view, False)) or 1) for view in (command.left, command.right))
    if inner != depth or command.output.elements != batch * rows * columns:
        got = f"{command.left.shape} x {command.right.shape} -> {command.output.shape}"
        return Finding("(..., M, K) x (..., K, N) -> (..., M, N)", got, "correct the views or the transposes")
    each = command.right.elements // (depth * columns) if command.requants else 1
    if command.requants and len(command.requants) != each:
        return Finding(f"{each} requants, one per right matrix", str(len(command.requants)), "correct the requants")
    if command.bias is not None and command.bias.elements != columns * each:
        return Finding(f"a bias of {columns * each} elements", str(command.bias.elements), "correct the bias view")
    scaled = command.multipliers
    if scaled is not None and (scaled.elements, scaled.dtype) != (columns, "i32"):
        return Finding(f"{columns} i32 multipliers", f"{scaled.elements} {scaled.dtype}", "correct the view")
    before = command.partial
    if before is not None and (before.shape, before.dtype, command.left.dtype) != (command.output.shape, "f32", "f32"):
        return Finding(f"f32 sums {command.output.shape} of f32", f"{before.shape} {before.dtype}", "correct the view")
    return None


class MatMul(Command, frozen=True, tag="matmul"):
    """Batched matrix product (MM2): left (..., M, K) x right (..., K, N), each transposed on request.

    GMEM operands keep their rank; an LMEM operand is (n, c, h, w) with batch n, and (c, h) = (rows, columns).
    Integers: sat(RSR(relu(acc + bias), requant)): relu BEFORE the requant (numerics.md 9.2). bias: N elements.
    requants: one requant per right matrix, in order, and N bias elements for each (chips that requant by QDM).
    multipliers: N int32, one per column, instead of the requant's (numerics.md 5.1).
    depth: 16-bit products are added up exactly so many at a time and these sums in f32; 0: one exact sum. bias_after:
    the product is rounded before the bias is added.
    partial: f32 sums of the earlier part of K, laid out as the output; the result may overwrite them.
    """

    inputs_ = ("left", "right", "bias", "multipliers", "partial")
    rules = (matrices,)
    four_bits = ("right",)
    one_kind = ("left", "right", "bias", "output")
    product = True
    replaced = ("partial",)

    left: View
    right: View
    output: View
    bias: View | None = None
    left_transpose: bool = False
    right_transpose: bool = False
    requant: Requant | None = None
    requants: tuple[Requant, ...] = ()
    multipliers: View | None = None
    partial: View | None = None
    relu: bool = False
    depth: int = 0
    bias_after: bool = False

    def fused_requants(self) -> tuple[Requant, ...]:
        """The requant for all, and those for each right matrix."""
        return self.requants if self.requant is None else (self.requant, *self.requants)

    def needs(self) -> tuple[Need, ...]:
        """A requant for each right matrix needs QDM."""
        return (Need("qdm", "no requants", str(self.requants)),) if self.requants else ()

    def least_work(self, chip: ChipSpec) -> int:
        """32-bit results before a requant."""
        if self.requant is None and not self.requants and self.multipliers is None:
            return 0
        rows, _ = matrix_shape(self.left, self.left_transpose)
        _, columns = matrix_shape(self.right, self.right_transpose)
        return product_bytes(rows, columns, chip)

    @property
    def on_vectors(self) -> bool:
        """Whether MM computes this product of a global layer: f32, the left matrix not transposed."""
        return self.left.dtype == "f32" and not self.left_transpose

    def multiplications(self, outputs: int, inputs: int, depth: int = 1) -> int:
        """The length of the inner axis, for each output."""
        return of_product(outputs, matrix_shape(self.left, self.left_transpose)[1])

    def kernel_run(self, view: View, chip: ChipSpec) -> int:
        """A channel's plane; if rows of the matrix have one element, the whole matrix."""
        run = super().kernel_run(view, chip)
        return prod(view.shape[1:] or view.shape) if run == 1 else run

    def kernel_tiles(self, chip: ChipSpec) -> int:
        """Tiles of the product of one row; each loads the row, and two matrix rows per lane."""
        rows, inner = matrix_shape(self.left, self.left_transpose)
        return ceil_div(inner, 2 * chip.lanes) if rows == 1 else 1

    def cycles(self, chip: ChipSpec) -> int:
        """Rows over the lanes, columns over the pixels of the array, the inner axis over its depth."""
        rows, inner = matrix_shape(self.left, self.left_transpose)
        lanes, _, depth, pixels = array(chip, itemsize(self.left.dtype), inner)
        _, columns = matrix_shape(self.right, self.right_transpose)
        batch = max(1, self.output.elements // (rows * columns))
        if self.of_tile and self.on_vectors:
            width = lane_columns(rows, columns, chip).right
            passes = inner + (self.bias is not None) + 2 * self.relu
            return batch * rows * row_steps(columns, width, chip) * passes
        products = batch * ceil_div(rows, lanes) * ceil_div(columns, pixels) * ceil_div(inner, depth)
        if self.requant is None and not self.requants and self.multipliers is None:
            return products
        copied = 2 * ceil_div(columns, chip.eu_elements(4)) if self.bias is not None else 0
        return products + copied + accumulated(self.output, chip, bias=self.bias is not None)

"""`tpusim opt IN.mlir -p 'pass{option=..},pass'`: named passes through xDSL's driver and registry."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

from xdsl.context import Context
from xdsl.dialects import builtin
from xdsl.passes import ModulePass
from xdsl.targets.mlir import MLIRTarget
from xdsl.utils.exceptions import ArgSpecParseError, ParseError, VerifyException
from xdsl.xdsl_opt_main import xDSLOptMain

from tpusim import ops
from tpusim.calibration.stage import apply_table
from tpusim.calibration.table import read_table
from tpusim.canonicalize import canonicalize
from tpusim.cli.output import stderr_console
from tpusim.errors import ImportModelError
from tpusim.files import replacing
from tpusim.grouping import divide
from tpusim.ir import text
from tpusim.ir.module import Model, load_model, packed_weights
from tpusim.ir.weights import WeightStore, save_weights
from tpusim.layer_group import LayerGroupConfig, Refinements, read_forced
from tpusim.layer_group.files import Forced
from tpusim.lowering import LoweringConfig, lower, reorder_weights
from tpusim.memory import assign_addresses
from tpusim.ops.dialects import register_dialects


class WeightedContext(Context):
    """A context that carries the weights of the module being rewritten."""

    weights: WeightStore


def _replace(ctx: Context, module: builtin.ModuleOp, change: Callable[[Model], Model]) -> None:
    """Apply a stage function in place, as a pass must."""
    result = change(Model(module, ctx.weights))  # type: ignore[attr-defined]
    ctx.weights = result.weights  # type: ignore[attr-defined]
    module.attributes.clear()
    module.attributes.update(result.module.attributes)
    body = result.module.body
    block = body.detach_block(0)
    module.body.erase_block(module.body.block, safe_erase=False)
    module.body.add_block(block)


@dataclass(frozen=True)
class Canonicalize(ModulePass):
    """Every op's own patterns."""

    name = "canonicalize"

    def apply(self, ctx: Context, op: builtin.ModuleOp) -> None:
        """Rewrite the module in place."""
        _replace(ctx, op, lambda m: canonicalize(m)[0])


@dataclass(frozen=True)
class ImportCalibrationTable(ModulePass):
    """Calibrated types from a table."""

    name = "import-calibration-table"
    file: str = "cali_table"
    asymmetric: bool = False

    def apply(self, ctx: Context, op: builtin.ModuleOp) -> None:
        """Rewrite the module in place."""
        _replace(ctx, op, lambda m: apply_table(m, read_table(Path(self.file)), asymmetric=self.asymmetric))


@dataclass(frozen=True)
class ConvertTopToTpu(ModulePass):
    """Lowering for a chip and mode."""

    name = "convert-top-to-tpu"
    chip: str = "bm1684x"
    mode: str = "int8"
    asymmetric: bool = False
    qtable: str = ""
    """A quantisation table: a file, or name:MODE,..."""
    quirks_off: tuple[str, ...] = ()
    """Quirks of upstream that are not to be reproduced."""
    matmul_perchannel: bool = False

    def apply(self, ctx: Context, op: builtin.ModuleOp) -> None:
        """Rewrite the module in place."""
        config = LoweringConfig(
            self.chip, self.mode, self.asymmetric, self.qtable or None, self.quirks_off, self.matmul_perchannel
        )  # fmt: skip
        _replace(ctx, op, lambda m: lower(m, config)[0])


@dataclass(frozen=True)
class WeightReorder(ModulePass):
    """Constants into the chip's layout."""

    name = "weight-reorder"

    def apply(self, ctx: Context, op: builtin.ModuleOp) -> None:
        """Rewrite the module in place."""
        _replace(ctx, op, reorder_weights)


@dataclass(frozen=True)
class LayerGroup(ModulePass):
    """Divide the module into layer groups."""

    name = "layer-group"
    opt: str | int = "2"  # xDSL reads {opt=1} as a number
    force: str = ""
    """File of pinned groups."""
    shape_secs_search_strategy: str | int = "0"
    cores: int = 1
    timestep_moves: bool = True
    in_place: bool = True
    group_overlap: bool = True
    timestep_combine: bool = True
    wide_rows: bool = False
    """As the fields of LayerGroupConfig."""

    def apply(self, ctx: Context, op: builtin.ModuleOp) -> None:
        """Rewrite the module in place."""
        forced = read_forced(Path(self.force)) if self.force else Forced(())
        switches = {f.name: getattr(self, f.name) for f in fields(Refinements)}
        shapes = "1" if forced.better_shapes else str(self.shape_secs_search_strategy)
        config = LayerGroupConfig(str(self.opt), forced.groups, shapes, self.cores, **switches)  # type: ignore[arg-type]
        _replace(ctx, op, lambda m: divide(m, config))


@dataclass(frozen=True)
class AddressAssign(ModulePass):
    """Give every tensor an address in global memory."""

    name = "address-assign"

    def apply(self, ctx: Context, op: builtin.ModuleOp) -> None:
        """Rewrite the module in place."""
        _replace(ctx, op, assign_addresses)


PASSES: tuple[type[ModulePass], ...] = (
    Canonicalize, ImportCalibrationTable, ConvertTopToTpu, WeightReorder, LayerGroup, AddressAssign,
)  # fmt: skip


class OptMain(xDSLOptMain):
    """xDSL's driver with tpusim's dialects, passes and parser; weights follow the module in and out.

    weight_file: what the printed module says of its weights; empty: what it said when it was read. printed: the module.
    """

    weight_file = ""
    printed: builtin.ModuleOp

    def register_all_dialects(self) -> None:
        """Only the dialects of this project."""
        self.ctx = WeightedContext()
        self.ctx.weights = WeightStore()
        for dialect in (builtin.Builtin, text.Func, text.Quant):
            self.ctx.load_dialect(dialect)
        register_dialects(self.ctx)

    def register_all_passes(self) -> None:
        """The stages that are passes."""
        for cls in PASSES:
            self.register_pass(cls.name, lambda cls=cls: cls)

    def register_all_frontends(self) -> None:
        """Read modules as MLIR text, which is all the driver is given."""

        def parse(stream: Any) -> builtin.ModuleOp:
            data = stream.read()
            source = data.decode("utf-8") if isinstance(data, bytes) else data
            return text.parse_module(source, self.ctx, self.get_input_name())

        self.available_frontends["mlir"] = parse

    def register_all_targets(self) -> None:
        """MLIR text is the only target; `-t` with another is a usage error."""
        self.available_targets["mlir"] = lambda: MLIRTarget

    def output_resulting_program(self, prog: builtin.ModuleOp) -> str:
        """In the form that was asked for, always with locations: they are the op names."""
        self.args.print_debuginfo, self.printed = True, prog
        if self.weight_file:
            prog.attributes["module.weight_file"] = builtin.StringAttr(self.weight_file)
        return super().output_resulting_program(prog).rstrip("\n") + "\n"


def optimise(words: Sequence[str]) -> int:
    """Run the driver; exit status 0. Raises TpusimError for bad input or a failing pass."""
    try:
        return _optimise(OptMain("tpusim pass driver", list(words)))
    except (ArgSpecParseError, ParseError, VerifyException, ValueError) as error:
        raise ImportModelError(f"opt: {error}") from error


def _optimise(driver: OptMain) -> int:
    context, output = cast("WeightedContext", driver.ctx), driver.args.output_file
    if driver.args.input_file:
        context.weights = load_model(Path(driver.args.input_file), ops.context()).weights
    if output:
        _write(driver, context, Path(output))
        return 0
    before = set(context.weights)
    driver.run()
    if set(context.weights) - before:
        stderr_console().print("tpusim: the module has new weights; write it with -o OUT.mlir to get them beside it")
    return 0


def _write(driver: OptMain, context: WeightedContext, output: Path) -> None:
    """The module in the form that was asked for, and its weights beside it."""
    driver.weight_file = f"{output.stem}_weights.npz"
    with replacing(output) as temporary:
        driver.args.output_file = str(temporary)
        driver.run()
        save_weights(packed_weights(driver.printed, context.weights), output.parent / driver.weight_file)

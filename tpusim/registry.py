"""The registry: what tpusim knows by name, loaded when first used, and what installed packages add to it.

One `Table` for each kind of thing. An entry is the thing itself, or a string "module:attribute" that is imported when
the entry is first asked for. A package adds entries by entry points in the group of the table; their names are read
from the package's metadata, and nothing is imported before it is used. A name stands for one thing: asking for a name
that two packages register, or a package and tpusim, is an error that names both.

`when_loaded` is the delayed registration of MLIR's DialectRegistry: what somebody attaches to a dialect that nobody has
loaded yet (interfaces, external models) waits for it.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from tpusim.errors import ConfigError, meant

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")


FOR_US = "tpusim.", "xdsl."
"""How the groups of the tables begin."""
_ignored = ContextVar("ignored", default=False)


@contextmanager
def without_plugins() -> Generator[None]:
    """Inside, installed packages add nothing to the tables."""
    token = _ignored.set(True)
    try:
        yield
    finally:
        _ignored.reset(token)


@cache
def installed() -> Mapping[str, Mapping[str, tuple["EntryPoint", ...]]]:
    """The entry points for tpusim and xDSL of all installed packages, by group and name.

    `installed.cache_clear()` reads them again.
    """
    from importlib.metadata import entry_points  # as long as `import tpusim` itself: imported when names are asked for

    groups: dict[str, dict[str, tuple[EntryPoint, ...]]] = {}
    found = entry_points()
    for group in found.groups:
        if group.startswith(FOR_US):
            for entry in found.select(group=group):
                names = groups.setdefault(group, {})
                names[entry.name] = (*names.get(entry.name, ()), entry)
    return groups


class Table(Generic[T]):
    """Named things of one kind.

    noun: what an error calls one of them. group: the entry points that add to the table. entries: by name, the things
    that are loaded, and where the others are.
    """

    def __init__(self, noun: str, group: str, shipped: Mapping[str, T | str]) -> None:
        self.noun = noun
        self.group = group
        self.entries: dict[str, T | str] = dict(shipped)
        self._shipped = dict(shipped)
        self._loaded: set[str] = set()
        self._waiting: dict[str, list[Callable[[T], object]]] = {}

    @property
    def plugins(self) -> Mapping[str, tuple["EntryPoint", ...]]:
        """The entry points of installed packages, by name."""
        return {} if _ignored.get() else installed().get(self.group, {})

    def names(self) -> tuple[str, ...]:
        """All names, those that ship first; nothing is imported."""
        return *(name for name in self.entries if name not in self.plugins), *sorted(self.plugins)

    def shipped(self) -> Mapping[str, T]:
        """All things that no installed package adds, by name, imported."""
        return {name: self.get(name) for name in self.entries if name not in self.plugins}

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __contains__(self, name: object) -> bool:
        return name in self.entries or name in self.plugins

    def package_of(self, name: str) -> str:
        """The installed package that registers a name, "" if none does."""
        return ", ".join(_package(entry) for entry in self.plugins.get(name, ()))

    def add(self, name: str, thing: T | str) -> None:
        """Register a thing. Raises ConfigError if the name stands for another thing already."""
        if name in self and self.entries.get(name) != thing and self._shipped.get(name) != thing:
            present = self.entries.get(name) or self.package_of(name)
            raise ConfigError(f"{self.noun} '{name}' is registered already, as {present}; choose another name")
        self.entries.setdefault(name, thing)

    def remove(self, name: str) -> None:
        """Take out a thing that `add` registered, as a test does with what it added."""
        del self.entries[name]
        self._loaded.discard(name)

    def is_loaded(self, name: str) -> bool:
        """Whether the thing of that name has been asked for, so that its code is imported."""
        return name in self._loaded

    def when_loaded(self, name: str, callback: Callable[[T], object]) -> None:
        """Call `callback` with the thing of that name when it is loaded, or now if it is loaded already.

        The name need not be registered yet. Callbacks of a name run in the order of registration, once each.
        """
        if name in self._loaded:
            callback(self.get(name))
        else:
            self._waiting.setdefault(name, []).append(callback)

    def get(self, name: str) -> T:
        """The thing of that name, imported if it was not.

        Raises ConfigError if there is none, if the name is registered twice, or if its import fails.
        """
        if name not in self._loaded or name not in self.entries:
            self.entries[name] = thing = self._imported(name)
            self._loaded.add(name)
            for callback in self._waiting.pop(name, ()):
                callback(thing)
        return cast("T", self.entries[name])

    def _imported(self, name: str) -> T:
        self._require_one(name)
        thing = self.entries.get(name)
        if isinstance(thing, str):
            module, _, attribute = thing.partition(":")
            return cast("T", getattr(import_module(module), attribute))
        return cast("T", self._load(self.plugins[name][0])) if thing is None else thing

    def _require_one(self, name: str) -> None:
        """Raises ConfigError unless a name stands for exactly one thing."""
        if name not in self:
            known = ", ".join(self.names()) or "none"
            raise ConfigError(f"{self.noun}: one of {known} is required, got '{name}'{meant(name, self.names())}")
        things = [f"{entry.value} of {_package(entry)}" for entry in self.plugins.get(name, ())]
        if name in self.entries:
            things.insert(0, f"{self.entries[name]} of tpusim")
        if len(things) > 1:
            raise ConfigError(
                f"{self.noun} '{name}': one registration is required, got {' and '.join(things)}; uninstall a package, "
                f"or rename its entry point of the group {self.group}"
            )

    def _load(self, entry: "EntryPoint") -> Any:
        try:
            return entry.load()
        except (Exception, SystemExit) as error:  # any code may run when somebody's module is imported
            raise ConfigError(
                f"{self.noun} '{entry.name}': {entry.value} of {_package(entry)} could not be imported, "
                f"{type(error).__name__}: {error}; repair or uninstall its package"
            ) from error


def _package(entry: "EntryPoint") -> str:
    """Name and version of the package that an entry point is of."""
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else "an unnamed package"


def tables() -> list[Table[Any]]:
    """The tables of this registry, one for each kind of thing, in the order of the file."""
    return [table for table in globals().values() if isinstance(table, Table)]


DIALECTS = Table[Any]("dialect", "tpusim.dialects", {"top": "tpusim.ops:Top", "tpu": "tpusim.ops:Tpu"})
"""xDSL dialects by namespace."""

BYTECODE = Table[Any]("encoding", "tpusim.bytecode", {})
"""Encodings of packages' dialects in MLIR bytecode, a `tpusim.ir.bytecode.DialectCodes`, by dialect."""

UNIVERSES = Table[Any]("universe", "xdsl.universe", {})
"""Dialects and passes of xDSL and of packages for it: `xdsl.universe.Universe` by package, xDSL's too."""

when_loaded = DIALECTS.when_loaded
"""`when_loaded(namespace, callback)`: call `callback` with the dialect when it is loaded, or now if it is loaded."""

FRONTENDS = Table[Any](
    "front end",
    "tpusim.frontends",
    {"onnx": "tpusim.frontend.onnx.front_end:ONNX", "tflite": "tpusim.frontend.onnx.front_end:ONNX"},
)
"""What reads a network's file as a top module, a `tpusim.frontend.FrontEnd`, by the ending of the file's name."""

FORMATS = Table[Any](
    "mode",
    "tpusim.formats",
    {
        "f32": "tpusim.ir.formats:F32",
        "f16": "tpusim.ir.formats:F16",
        "bf16": "tpusim.ir.formats:BF16",
        "int8": "tpusim.ir.formats:INT8",
        "w4f16": "tpusim.ir.formats:W4F16",
        "w4bf16": "tpusim.ir.formats:W4BF16",
        "w8f16": "tpusim.ir.formats:W8F16",
        "w8bf16": "tpusim.ir.formats:W8BF16",
        "w4int8": "tpusim.ir.formats:W4INT8",
        "f8e5m2": "tpusim.ir.formats:F8E5M2",
    },
)
"""Number formats by name in small letters, as `--mode` and quantisation tables take them: `NumberFormat` values."""

PATTERNS = Table[Any](
    "pattern",
    "tpusim.patterns",
    {
        "gelu_tanh": "tpusim.ops.activation.top:gelu_by_tanh",
        "mul_too_large": "tpusim.ops.patterns.merged_numbers:MulTooLarge",
        "where_too_large": "tpusim.ops.where:WhereTooLarge",
        "weight_equalization": "tpusim.ops.patterns.equalise:EqualiseConvs",
    },
)
"""Rewrites of top modules on request (`--also`): functions of the weights that give an xDSL RewritePattern."""

ONNX_FORMS = Table[Any]("ONNX form", "tpusim.onnx_forms", {})
"""How packages' ops are written as ONNX nodes, a `tpusim.studies.export.onnx.Form`, by the op's name."""

TOSA_FORMS = Table[Any]("TOSA form", "tpusim.tosa_forms", {})
"""How packages' ops are written in TOSA, a `tpusim.studies.export.tosa.Form`, by the op's name."""

ENGINES = Table[Any](
    "engine",
    "tpusim.engines",
    {
        "iree": "tpusim.inference.iree:Iree",
        "mlir": "tpusim.studies.export.tosa.jit:MlirJit",
        "tosa": "tpusim.studies.export.tosa.flatbuffer:ReferenceModel",
        "iree-tosa": "tpusim.studies.export.tosa.iree:IreeOfTosa",
    },
)
"""What runs a module in place of JAX: classes of the module and of the tensors to return, whose instances take the
inputs of a sample by name and return tensors by name."""

STRATEGIES = Table[Any](
    "strategy",
    "tpusim.strategies",
    {
        "1": "tpusim.layer_group.search.stage:from_the_tail",
        "2": "tpusim.layer_group.search.dynamic:dynamic",
        "off": "tpusim.layer_group.search.stage:every_op_alone",
        "best": "tpusim.passes.grouping:divide",
    },
)
"""How ops are divided into layer groups: `tpusim.layer_group.Strategy`, but "best", which compiles what others give."""

CHIPS = Table[Any]("chip", "tpusim.chips", {})
"""Chips of installed packages: paths of TOML files by the chips' names; the shipped ones are files of tpusim.chips."""

TARGETS = Table[Any](
    "target",
    "tpusim.targets",
    {
        "bm1684x": "tpusim.targets.bm1684x:TARGET",
        "bm1690": "tpusim.targets.bm1690:TARGET",
        "bm1684": "tpusim.targets.bm1684:TARGET",
        "cv18xx": "tpusim.targets.cv18xx:TARGET",
    },
)
"""What each family of chips answers in place of the ops, a `tpusim.interfaces.Target`, by family."""

FAMILIES = Table[Any](
    "family",
    "tpusim.families",
    {
        "bm1684x": "tpusim.chips.families:BM1684X",
        "bm1690": "tpusim.chips.families:BM1690",
        "bm1684": "tpusim.chips.families:BM1684",
        "cv18xx": "tpusim.chips.families:CV18XX",
    },
)
"""The hardware that all chips of a family have in common, a `tpusim.chips.Hardware`, by family."""

COMMANDS = Table[Any](
    "command",
    "tpusim.commands",
    {
        "conv": "tpusim.isa.commands.conv:Conv",
        "depthwise": "tpusim.isa.commands.depthwise:Depthwise",
        "pool": "tpusim.isa.commands.pool:Pool",
        "matmul": "tpusim.isa.commands.matmul:MatMul",
        "arith": "tpusim.isa.commands.arith:Arith",
        "compare": "tpusim.isa.commands.compare:Compare",
        "where": "tpusim.isa.commands.where:Where",
        "rescale": "tpusim.isa.commands.rescale:Rescale",
        "channel_rescale": "tpusim.isa.commands.channel_rescale:ChannelRescale",
        "quantize": "tpusim.isa.commands.quantize:Quantize",
        "dequantize": "tpusim.isa.commands.dequantize:Dequantize",
        "channel_scale": "tpusim.isa.commands.channel_scale:ChannelScale",
        "select": "tpusim.isa.commands.select:Select",
        "lut": "tpusim.isa.commands.lut:Lut",
        "pick": "tpusim.isa.commands.pick:Pick",
        "float_lut": "tpusim.isa.commands.float_lut:FloatLut",
        "lane_copy": "tpusim.isa.commands.lane_copy:LaneCopy",
        "fn": "tpusim.isa.commands.fn:Fn",
        "send_msg": "tpusim.isa.commands.messages:SendMessage",
        "wait_msg": "tpusim.isa.commands.messages:WaitMessage",
        "move": "tpusim.isa.commands.move:Move",
        "move_rows": "tpusim.isa.commands.move_rows:MoveRows",
        "fill": "tpusim.isa.commands.fill:Fill",
        "dma_send_msg": "tpusim.isa.commands.messages:DmaSendMessage",
        "dma_wait_msg": "tpusim.isa.commands.messages:DmaWaitMessage",
        "global": "tpusim.isa.commands.global_kernel:GlobalKernel",
        "host": "tpusim.isa.commands.host:HostCall",
    },
)
"""Commands of the machine by opcode, in the order of docs/isa.md."""

FUNCTIONS = Table[Any](
    "macro function",
    "tpusim.functions",
    {
        "softmax": "tpusim.isa.functions.softmax:Softmax",
        "softmax_int": "tpusim.isa.functions.softmax:SoftmaxInt",
        "a16_matmul": "tpusim.isa.functions.a16:A16MatMul",
        "attention_weights": "tpusim.isa.functions.attention:AttentionWeights",
        "attention": "tpusim.isa.functions.attention:Attention",
        "recurrent": "tpusim.isa.functions.recurrent:Recurrent",
        "flash_attention": "tpusim.isa.functions.flash:FlashAttention",
        "flash_block": "tpusim.isa.functions.flash:FlashBlock",
        "flash_result": "tpusim.isa.functions.flash:FlashResult",
        "flash_mix": "tpusim.isa.functions.flash:FlashMix",
        "flash_scores": "tpusim.isa.functions.flash:FlashScores",
        "softmax_tables": "tpusim.isa.functions.softmax:SoftmaxTables",
        "lrn": "tpusim.isa.functions.normalised:Lrn",
        "lrn_tables": "tpusim.isa.functions.normalised:LrnTables",
        "active": "tpusim.isa.functions.floats:Active",
        "layernorm": "tpusim.isa.functions.normalised:LayerNorm",
        "rmsnorm": "tpusim.isa.functions.normalised:RMSNorm",
        "groupnorm": "tpusim.isa.functions.normalised:GroupNorm",
        "pixelnorm": "tpusim.isa.functions.normalised:PixelNorm",
        "reduce": "tpusim.isa.functions.reduce:Reduce",
        "interp": "tpusim.isa.functions.interp:Interp",
        "host_function": "tpusim.isa.functions.host:HostFunction",
        "add_int": "tpusim.isa.functions.integers:AddInt",
        "sub_int": "tpusim.isa.functions.integers:SubInt",
        "mul_int": "tpusim.isa.functions.integers:MulInt",
        "const_int": "tpusim.isa.functions.integers:ConstInt",
        "sum_shift": "tpusim.isa.functions.integers:SumShift",
        "extreme_shift": "tpusim.isa.functions.integers:ExtremeShift",
        "reduce_int": "tpusim.isa.functions.integers:ReduceInt",
        "concat_shift": "tpusim.isa.functions.integers:ConcatShift",
        "concat": "tpusim.isa.functions.moved:Concat",
        "reshape": "tpusim.isa.functions.moved:Reshape",
        "pad": "tpusim.isa.functions.moved:Pad",
        "slice": "tpusim.isa.functions.moved:Slice",
        "tile": "tpusim.isa.functions.moved:Tile",
        "upsample": "tpusim.isa.functions.upsample:Upsample",
        "gather": "tpusim.isa.functions.picked:Gather",
        "channel_tables": "tpusim.isa.functions.picked:ChannelTables",
        "yuv_to_bgr": "tpusim.isa.functions.picked:YuvToBgr",
        "arg": "tpusim.isa.functions.picked:Arg",
        "gather_elements": "tpusim.isa.functions.picked:GatherElements",
        "scatter_elements": "tpusim.isa.functions.picked:ScatterElements",
        "topk": "tpusim.isa.functions.picked:TopK",
        "reverse": "tpusim.isa.functions.picked:Reverse",
        "nms": "tpusim.isa.functions.picked:Nms",
        "cumulate": "tpusim.isa.functions.floats:Cumulate",
        "power": "tpusim.isa.functions.floats:Power",
        "remainder": "tpusim.isa.functions.floats:Remainder",
        "grid_sample": "tpusim.isa.functions.floats:GridSample",
    },
)
"""Macro functions of the machine, which `fn` commands compute, by name in the order of docs/isa.md."""

PASSES = Table[Any](
    "pass",
    "tpusim.passes",
    {
        "address-assign": "tpusim.passes.memory:AddressAssign",
        "apply-pdl": "tpusim.passes.pdl:ApplyPdl",
        "calibrate": "tpusim.passes.calibration:Calibrate",
        "canonicalize": "tpusim.passes.canonicalize:Canonicalize",
        "check-scales": "tpusim.passes.lowering:CheckScales",
        "choose-formats": "tpusim.passes.lowering:ChooseFormats",
        "choose-cores": "tpusim.passes.layer_group:ChooseCores",
        "codegen": "tpusim.passes.codegen:Codegen",
        "combine-timesteps": "tpusim.passes.layer_group:CombineTimesteps",
        "cse": "tpusim.passes.generic:Cse",
        "dce": "tpusim.passes.generic:Dce",
        "fold": "tpusim.passes.generic:Fold",
        "inline": "tpusim.passes.generic:Inline",
        "sccp": "tpusim.passes.generic:Sccp",
        "symbol-dce": "tpusim.passes.generic:SymbolDce",
        "convert-ops": "tpusim.passes.lowering:ConvertOps",
        "convert-top-to-tpu": "tpusim.passes.lowering:ConvertTopToTpu",
        "fold-channel-swaps": "tpusim.passes.lowering:FoldChannelSwaps",
        "fuse-preprocess": "tpusim.passes.preprocess:FusePreprocess",
        "fuse-tpu-ops": "tpusim.passes.lowering:FuseTpuOps",
        "import-calibration-table": "tpusim.passes.calibration:ImportCalibrationTable",
        "layer-group": "tpusim.passes.layer_group:LayerGroup",
        "merge-moves": "tpusim.passes.layer_group:MergeMoves",
        "overlap-groups": "tpusim.passes.layer_group:OverlapGroups",
        "processor-assign": "tpusim.passes.lowering:ProcessorAssign",
        "processor-top-optimize": "tpusim.passes.lowering:ProcessorTopOptimize",
        "processor-tpu-optimize": "tpusim.passes.lowering:ProcessorTpuOptimize",
        "propagate-ranges": "tpusim.passes.lowering:PropagateRanges",
        "search-groups": "tpusim.passes.layer_group:SearchGroups",
        "set-preprocess": "tpusim.passes.preprocess:SetPreprocess",
        "smoothquant": "tpusim.passes.calibration:Smoothquant",
        "softmax_correction": "tpusim.passes.calibration:SoftmaxCorrection",
        "strip-io-quant": "tpusim.passes.lowering:StripIoQuant",
        "weight-reorder": "tpusim.passes.lowering:WeightReorder",
        "outline-host-functions": "tpusim.passes.host_functions:OutlineHostFunctions",
    },
)
"""Classes of `tpusim.passes.Pass` by name."""
PIPELINES = Table[Any](
    "pipeline",
    "tpusim.pipelines",
    {
        "deploy": "tpusim.passes.pipelines:DEPLOY",
        "deploy-float": "tpusim.passes.pipelines:DEPLOY_FLOAT",
        "lower-only": "tpusim.passes.pipelines:LOWER_ONLY",
    },
)
"""Values of `tpusim.passes.Pipeline` by name."""

HANDLERS = Table[Any](
    "handler of a command",
    "tpusim.machine",
    {
        "conv": "tpusim.simulator.conv:conv",
        "depthwise": "tpusim.simulator.conv:depthwise",
        "pool": "tpusim.simulator.conv:pool",
        "matmul": "tpusim.simulator.tiu:matmul",
        "arith": "tpusim.simulator.tiu:arith",
        "compare": "tpusim.simulator.tiu:compare",
        "where": "tpusim.simulator.tiu:where",
        "rescale": "tpusim.simulator.tiu:rescale",
        "channel_rescale": "tpusim.simulator.tiu:channel_rescale",
        "quantize": "tpusim.simulator.tiu:quantize",
        "dequantize": "tpusim.simulator.tiu:dequantize",
        "channel_scale": "tpusim.simulator.tiu:channel_scale",
        "select": "tpusim.simulator.tiu:select",
        "lut": "tpusim.simulator.tiu:lut",
        "pick": "tpusim.simulator.tiu:pick",
        "float_lut": "tpusim.simulator.tiu:float_lut",
        "lane_copy": "tpusim.simulator.tiu:lane_copy",
        "fn": "tpusim.simulator.tiu:macro",
        "move": "tpusim.simulator.gdma:move",
        "move_rows": "tpusim.simulator.gdma:move_rows",
        "fill": "tpusim.simulator.gdma:fill",
    },
)
"""What the machine does for a command, by opcode: functions of the command and the memory of its core."""

MEANINGS = Table[Any](
    "meaning of a macro function",
    "tpusim.meanings",
    {
        "softmax": "tpusim.simulator.function:softmax",
        "softmax_int": "tpusim.simulator.function:softmax_int",
        "attention_weights": "tpusim.simulator.attention:attention_weights",
        "a16_matmul": "tpusim.simulator.a16:a16_matmul",
        "attention": "tpusim.simulator.attention:attention",
        "recurrent": "tpusim.simulator.recurrent:recurrent",
        "flash_attention": "tpusim.simulator.attention:flash_attention",
        "flash_block": "tpusim.simulator.attention:flash_block",
        "flash_result": "tpusim.simulator.attention:flash_result",
        "flash_mix": "tpusim.simulator.attention:flash_mix",
        "flash_scores": "tpusim.simulator.attention:flash_scores",
        "softmax_tables": "tpusim.simulator.float_tables:softmax_tables",
        "lrn": "tpusim.simulator.function:lrn",
        "lrn_tables": "tpusim.simulator.float_tables:lrn_tables",
        "active": "tpusim.simulator.activation:active",
        "layernorm": "tpusim.simulator.statistics:layernorm",
        "rmsnorm": "tpusim.simulator.statistics:rmsnorm",
        "groupnorm": "tpusim.simulator.statistics:groupnorm",
        "pixelnorm": "tpusim.simulator.statistics:pixelnorm",
        "reduce": "tpusim.simulator.statistics:reduce",
        "arg": "tpusim.simulator.function:arg",
        "add_int": "tpusim.simulator.function:add_int",
        "mul_int": "tpusim.simulator.function:mul_int",
        "sub_int": "tpusim.simulator.function:sub_int",
        "const_int": "tpusim.simulator.function:const_int",
        "sum_shift": "tpusim.simulator.shifted:sum_shift",
        "extreme_shift": "tpusim.simulator.shifted:extreme_shift",
        "reduce_int": "tpusim.simulator.shifted:reduce_int",
        "concat_shift": "tpusim.simulator.shifted:concat_shift",
        "pad": "tpusim.simulator.function:pad",
        "slice": "tpusim.simulator.function:slice_",
        "tile": "tpusim.simulator.function:tile",
        "upsample": "tpusim.simulator.function:upsample",
        "gather": "tpusim.simulator.positions:gather",
        "channel_tables": "tpusim.simulator.positions:channel_tables",
        "yuv_to_bgr": "tpusim.simulator.positions:yuv_to_bgr",
        "gather_elements": "tpusim.simulator.positions:gather_elements",
        "scatter_elements": "tpusim.simulator.positions:scatter_elements",
        "topk": "tpusim.simulator.positions:topk",
        "reverse": "tpusim.simulator.positions:reverse",
        "nms": "tpusim.simulator.positions:nms",
        "cumulate": "tpusim.simulator.positions:cumulate",
        "power": "tpusim.simulator.positions:power",
        "remainder": "tpusim.simulator.positions:remainder",
        "grid_sample": "tpusim.simulator.grid:grid_sample",
        "interp": "tpusim.simulator.function:interp",
        "host_function": "tpusim.simulator.host_function:host_function",
        "concat": "tpusim.simulator.function:concat",
        "reshape": "tpusim.simulator.function:reshape",
    },
)
"""What the machine computes for a macro function, by name: functions of it, its operands and the result's view."""

FIELD_HANDLERS = Table[Any](
    "field handler of a command",
    "tpusim.field_handlers",
    {
        "conv": "tpusim.simulator.field.windows:conv",
        "depthwise": "tpusim.simulator.field.windows:depthwise",
        "pool": "tpusim.simulator.field.windows:pool",
        "matmul": "tpusim.simulator.field.tiu:matmul",
        "arith": "tpusim.simulator.field.tiu:arith",
        "compare": "tpusim.simulator.field.tiu:compare",
        "where": "tpusim.simulator.field.tiu:where",
        "rescale": "tpusim.simulator.field.tiu:rescale",
        "channel_rescale": "tpusim.simulator.field.tiu:channel_rescale",
        "quantize": "tpusim.simulator.field.tiu:quantize",
        "dequantize": "tpusim.simulator.field.tiu:dequantize",
        "channel_scale": "tpusim.simulator.field.tiu:channel_scale",
        "select": "tpusim.simulator.field.tiu:select",
        "lut": "tpusim.simulator.field.tiu:lut",
        "pick": "tpusim.simulator.field.tiu:pick",
        "float_lut": "tpusim.simulator.field.tiu:float_lut",
        "lane_copy": "tpusim.simulator.field.moves:move",
        "fn": "tpusim.simulator.field.tiu:macro",
        "move": "tpusim.simulator.field.moves:move",
        "move_rows": "tpusim.simulator.field.moves:move_rows",
        "fill": "tpusim.simulator.field.moves:fill",
    },
)
"""What the machine over a finite field does for a command, by opcode: functions as those of `HANDLERS`."""

FIELD_MEANINGS = Table[Any](
    "field meaning of a macro function",
    "tpusim.field_meanings",
    {
        "softmax": "tpusim.simulator.field.functions:softmax",
        "softmax_int": "tpusim.simulator.field.functions:along_axis",
        "softmax_tables": "tpusim.simulator.field.functions:along_axis",
        "cumulate": "tpusim.simulator.field.functions:along_axis",
        "attention_weights": "tpusim.simulator.field.functions:attention_weights",
        "a16_matmul": "tpusim.simulator.field.functions:a16_matmul",
        "attention": "tpusim.simulator.field.functions:attention",
        "recurrent": "tpusim.simulator.field.functions:whole",
        "flash_attention": "tpusim.simulator.field.functions:flash_attention",
        "flash_block": "tpusim.simulator.field.functions:flash_block",
        "flash_result": "tpusim.simulator.field.functions:flash_result",
        "flash_mix": "tpusim.simulator.field.functions:flash_mix",
        "flash_scores": "tpusim.simulator.field.functions:flash_scores",
        "lrn": "tpusim.simulator.field.functions:lrn",
        "lrn_tables": "tpusim.simulator.field.functions:lrn",
        "active": "tpusim.simulator.field.functions:active",
        "layernorm": "tpusim.simulator.field.functions:normalised",
        "rmsnorm": "tpusim.simulator.field.functions:normalised",
        "groupnorm": "tpusim.simulator.field.functions:groupnorm",
        "pixelnorm": "tpusim.simulator.field.functions:pixelnorm",
        "reduce": "tpusim.simulator.field.functions:reduced",
        "reduce_int": "tpusim.simulator.field.functions:reduced",
        "arg": "tpusim.simulator.field.functions:arg",
        "add_int": "tpusim.simulator.field.functions:add_int",
        "sub_int": "tpusim.simulator.field.functions:sub_int",
        "mul_int": "tpusim.simulator.field.functions:mul_int",
        "const_int": "tpusim.simulator.field.functions:const_int",
        "sum_shift": "tpusim.simulator.field.functions:sum_shift",
        "extreme_shift": "tpusim.simulator.field.functions:extreme_shift",
        "concat_shift": "tpusim.simulator.field.functions:concat_shift",
        "concat": "tpusim.simulator.field.functions:moved",
        "reshape": "tpusim.simulator.field.functions:moved",
        "slice": "tpusim.simulator.field.functions:moved",
        "tile": "tpusim.simulator.field.functions:moved",
        "upsample": "tpusim.simulator.field.functions:moved",
        "reverse": "tpusim.simulator.field.functions:moved",
        "pad": "tpusim.simulator.field.functions:pad",
        "gather": "tpusim.simulator.field.functions:gather",
        "gather_elements": "tpusim.simulator.field.functions:gather_elements",
        "scatter_elements": "tpusim.simulator.field.functions:whole",
        "topk": "tpusim.simulator.field.functions:topk",
        "nms": "tpusim.simulator.field.functions:whole",
        "channel_tables": "tpusim.simulator.field.functions:channel_tables",
        "yuv_to_bgr": "tpusim.simulator.field.functions:by_sample",
        "power": "tpusim.simulator.field.functions:elementwise",
        "remainder": "tpusim.simulator.field.functions:elementwise",
        "grid_sample": "tpusim.simulator.field.functions:whole",
        "interp": "tpusim.simulator.field.functions:interp",
        "host_function": "tpusim.simulator.field.functions:whole",
    },
)
"""What a macro function means over a finite field, by name: functions of the field, it, its operands and the view."""

FIELD_OPS = Table[Any](
    "field meaning of an op",
    "tpusim.field_ops",
    {
        "tpu.Conv2D": "tpusim.proof.meanings.windows:conv",
        "tpu.Conv3D": "tpusim.proof.meanings.windows:conv",
        "tpu.Deconv": "tpusim.proof.meanings.windows:conv",
        "tpu.Deconv3D": "tpusim.proof.meanings.windows:conv",
        "tpu.Pool2D": "tpusim.proof.meanings.windows:pool",
        "tpu.Pool3D": "tpusim.proof.meanings.windows:pool",
        "tpu.MatMul": "tpusim.proof.meanings.matrices:matmul",
        "tpu.Add": "tpusim.proof.meanings.arithmetic:add",
        "tpu.Sub": "tpusim.proof.meanings.arithmetic:sub",
        "tpu.Mul": "tpusim.proof.meanings.arithmetic:mul",
        "tpu.Concat": "tpusim.proof.meanings.arithmetic:concat",
        "tpu.Relu": "tpusim.proof.meanings.arithmetic:relu",
        "tpu.MulShift": "tpusim.proof.meanings.arithmetic:requant",
        "tpu.RequantInt": "tpusim.proof.meanings.arithmetic:requant",
        "tpu.RequantIntAxis": "tpusim.proof.meanings.arithmetic:requant_axis",
        "tpu.Lut": "tpusim.proof.meanings.arithmetic:lut",
        "tpu.Active": "tpusim.proof.meanings.arithmetic:active",
        "tpu.Reciprocal": "tpusim.proof.meanings.arithmetic:active",
        "tpu.Permute": "tpusim.proof.meanings.arithmetic:moved",
        "tpu.Slice": "tpusim.proof.meanings.arithmetic:moved",
        "tpu.Tile": "tpusim.proof.meanings.arithmetic:moved",
        "tpu.Depth2Space": "tpusim.proof.meanings.arithmetic:moved",
        "tpu.SwapDimInner": "tpusim.proof.meanings.arithmetic:moved",
        "tpu.Reverse": "tpusim.proof.meanings.arithmetic:moved",
        "tpu.Reshape": "tpusim.proof.meanings.arithmetic:moved",
        "tpu.Upsample": "tpusim.proof.meanings.arithmetic:moved",
        "tpu.Cast": "tpusim.proof.meanings.casts:cast",
        "tpu.MulConst": "tpusim.proof.meanings.numbers:with_number",
        "tpu.AddConst": "tpusim.proof.meanings.numbers:with_number",
        "tpu.SubConst": "tpusim.proof.meanings.numbers:with_number",
        "tpu.MaxConst": "tpusim.proof.meanings.numbers:with_number",
        "tpu.MinConst": "tpusim.proof.meanings.numbers:with_number",
        "tpu.LeakyRelu": "tpusim.proof.meanings.numbers:leaky_relu",
        "tpu.PReluOp": "tpusim.proof.meanings.numbers:prelu",
        "tpu.Pad": "tpusim.proof.meanings.arithmetic:padded",
        "tpu.Softmax": "tpusim.proof.meanings.rows:softmax",
        "tpu.LayerNorm": "tpusim.proof.meanings.rows:layernorm",
        "tpu.A16MatMul": "tpusim.proof.meanings.matrices:a16_matmul",
        "tpu.RMSNorm": "tpusim.proof.meanings.rows:rmsnorm",
        "tpu.GroupNorm": "tpusim.proof.meanings.rows:groupnorm",
        "tpu.InstanceNorm": "tpusim.proof.meanings.rows:groupnorm",
        "tpu.PixelNorm": "tpusim.proof.meanings.rows:pixelnorm",
        "tpu.Max": "tpusim.proof.meanings.arithmetic:extreme",
        "tpu.Min": "tpusim.proof.meanings.arithmetic:extreme",
        "tpu.Div": "tpusim.proof.meanings.arithmetic:div",
        "tpu.Scale": "tpusim.proof.meanings.arithmetic:scale",
        "tpu.Clip": "tpusim.proof.meanings.arithmetic:clip",
        "tpu.Copy": "tpusim.proof.meanings.arithmetic:moved",
        "tpu.SwapChannel": "tpusim.proof.meanings.arithmetic:moved",
        "tpu.LutBF16": "tpusim.proof.meanings.tables:float_lut",
        "tpu.ScaleLut": "tpusim.proof.meanings.tables:channel_lut",
        "tpu.LRN": "tpusim.proof.meanings.tables:lrn",
        "tpu.Compare": "tpusim.proof.meanings.logic:compare",
        "tpu.CompareConst": "tpusim.proof.meanings.logic:compare_const",
        "tpu.Where": "tpusim.proof.meanings.logic:where",
        "tpu.Reduce": "tpusim.proof.meanings.rows:reduce",
        "tpu.Arg": "tpusim.proof.meanings.rows:arg",
        "tpu.TopK": "tpusim.proof.meanings.rows:topk",
        "tpu.CumSum": "tpusim.proof.meanings.rows:cumulate",
        "tpu.Attention": "tpusim.proof.meanings.attention:attention",
        "tpu.FAttention": "tpusim.proof.meanings.attention:flash_attention",
        "tpu.Gather": "tpusim.proof.meanings.places:gather",
        "tpu.GatherElements": "tpusim.proof.meanings.places:gather_elements",
        "tpu.ScatterElements": "tpusim.proof.meanings.places:scatter_elements",
        "tpu.GridSampler": "tpusim.proof.meanings.places:grid_sample",
        "tpu.Interp": "tpusim.proof.meanings.places:interp",
        "tpu.Nms": "tpusim.proof.meanings.places:nms",
        "tpu.LSTM": "tpusim.proof.meanings.places:recurrent",
        "tpu.GRU": "tpusim.proof.meanings.places:recurrent",
        "tpu.Pow3": "tpusim.proof.meanings.places:power",
        "tpu.Mod": "tpusim.proof.meanings.places:remainder",
        "tpu.Csc": "tpusim.proof.meanings.places:frames",
    },
)
"""What a tpu op means over a finite field, by its name: functions of it, its operands' elements and the field."""

CLI = Table[Any](
    "subcommand",
    "tpusim.cli",
    {
        "run": "tpusim.cli.execution:Run",
        "check": "tpusim.studies.commands.check:Check",
        "inspect": "tpusim.cli.inspect:Inspect",
        "fit": "tpusim.studies.commands.fit:FitCommand",
        "verify": "tpusim.studies.commands.verify:VerifyCommand",
        "import": "tpusim.cli.stages:Import",
        "canonicalize": "tpusim.cli.stages:Canonicalize",
        "calibrate": "tpusim.cli.stages:Calibrate",
        "lower": "tpusim.cli.stages:Lower",
        "group": "tpusim.cli.stages:Group",
        "assign": "tpusim.cli.stages:Assign",
        "codegen": "tpusim.studies.commands.codegen:Codegen",
        "export": "tpusim.studies.commands.export:Export",
        "infer": "tpusim.cli.execution:Infer",
        "simulate": "tpusim.cli.execution:Simulate",
        "link": "tpusim.cli.nets:Link",
        "prove": "tpusim.cli.nets:Prove",
        "debug": "tpusim.cli.debugger.options:Debug",
        "dis": "tpusim.cli.stream:Disassemble",
        "asm": "tpusim.cli.stream:Assemble",
        "compare": "tpusim.cli.comparison:Compare",
        "npz": "tpusim.cli.npz:Npz",
        "why": "tpusim.studies.commands.why:Why",
        "search-qtable": "tpusim.studies.commands.search_qtable:SearchQtable",
        "search-threshold": "tpusim.studies.commands.search_threshold:SearchThreshold",
        "correct-bias": "tpusim.studies.commands.correct_bias:CorrectBias",
        "bisect": "tpusim.studies.commands.bisect:Bisect",
        "bench": "tpusim.studies.commands.bench:Bench",
        "explore": "tpusim.studies.commands.explore:Explore",
        "explore-group": "tpusim.studies.commands.what_if:WhatIfCommand",
        "explore-diff": "tpusim.studies.commands.explore_diff:ExploreDiff",
        "explore-roofline": "tpusim.studies.commands.explore_roofline:ExploreRoofline",
        "zoo": "tpusim.cli.zoo:Zoo",
        "chips": "tpusim.cli.chips:Chips",
        "plugins": "tpusim.cli.plugins:Plugins",
        "support": "tpusim.cli.fidelity:Support",
    },
)
"""Subcommands of `tpusim` by name: dataclasses whose fields are options, `tpusim.cli.command.Command`."""

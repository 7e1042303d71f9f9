"""The registry: what tpusim knows by name, loaded when first used, and what installed packages add to it.

One `Table` for each kind of thing. An entry is the thing itself, or a string "module:attribute" that is imported when
the entry is first asked for. A package adds entries by entry points in the group "tpusim.KIND"; their names are read
from the package's metadata, and nothing is imported before it is used. A name that ships stays what it is.
"""

from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar, cast

from tpusim.errors import ConfigError

T = TypeVar("T")


class Table(Generic[T]):
    """Named things of one kind.

    noun: what an error calls one of them. group: the entry points that add to the table.
    """

    def __init__(self, noun: str, group: str, shipped: Mapping[str, T | str]) -> None:
        self.noun = noun
        self.group = group
        self._entries: dict[str, T | str] = dict(shipped)
        self._loaded: dict[str, T] = {}
        self._waiting: dict[str, list[Callable[[T], object]]] = {}

    @cached_property
    def plugins(self) -> Mapping[str, EntryPoint]:
        """The entry points of installed packages, by name, without those whose name ships."""
        return {entry.name: entry for entry in entry_points(group=self.group) if entry.name not in self._entries}

    def names(self) -> tuple[str, ...]:
        """All names, those that ship first."""
        return *self._entries, *sorted(self.plugins.keys() - self._entries.keys())

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __contains__(self, name: object) -> bool:
        return name in self._entries or name in self.plugins

    def add(self, name: str, thing: T | str) -> None:
        """Register a thing. Raises ConfigError if the name stands for another thing already."""
        if name in self and thing is not self._loaded.get(name) and thing != self._entries.get(name):
            present = self._entries.get(name) or self.plugins[name].value
            raise ConfigError(f"{self.noun} '{name}' is registered already, as {present}; choose another name")
        self._entries[name] = thing

    def remove(self, name: str) -> None:
        """Take out a thing that `add` registered, as a test does with what it added."""
        del self._entries[name]
        self._loaded.pop(name, None)

    def is_loaded(self, name: str) -> bool:
        """Whether the thing of that name has been asked for, so that its code is imported."""
        return name in self._loaded

    def when_loaded(self, name: str, callback: Callable[[T], object]) -> None:
        """Call `callback` with the thing of that name when it is loaded, or now if it is loaded already.

        The name need not be registered yet. Callbacks of a name run in the order of registration, once each.
        """
        if name in self._loaded:
            callback(self._loaded[name])
        else:
            self._waiting.setdefault(name, []).append(callback)

    def get(self, name: str) -> T:
        """The thing of that name, imported if it was not. Raises ConfigError if there is none, or its import fails."""
        if name not in self._loaded:
            thing = self._loaded[name] = self._imported(name)
            for callback in self._waiting.pop(name, ()):
                callback(thing)
        return self._loaded[name]

    def _imported(self, name: str) -> T:
        if name in self._entries:
            thing = self._entries[name]
            if not isinstance(thing, str):
                return thing
            module, _, attribute = thing.partition(":")
            return cast("T", getattr(import_module(module), attribute))
        if name in self.plugins:
            return cast("T", self._load(self.plugins[name]))
        near = get_close_matches(name, self.names(), 1)
        hint = f"; did you mean '{near[0]}'" if near else ""
        raise ConfigError(f"{self.noun}: one of {', '.join(self.names()) or 'none'} is required, got '{name}'{hint}")

    def _load(self, entry: EntryPoint) -> Any:
        try:
            return entry.load()
        except Exception as error:  # any code may run when somebody's module is imported
            raise ConfigError(
                f"{self.noun} '{entry.name}': {entry.value} could not be imported, {type(error).__name__}: {error}; "
                "repair or uninstall its package"
            ) from error


DIALECTS = Table[Any]("dialect", "tpusim.dialects", {"top": "tpusim.ops:Top", "tpu": "tpusim.ops:Tpu"})
"""xDSL dialects by namespace."""

when_loaded = DIALECTS.when_loaded
"""`when_loaded(namespace, callback)`: call `callback` with the dialect when it is loaded, or now if it is loaded."""

TARGETS = Table[Any](
    "target",
    "tpusim.targets",
    {
        "bm1684x": "tpusim.targets.bm1684x:TARGET",
        "bm1690": "tpusim.targets.bm1684x:TARGET",
        "bm1684": "tpusim.targets.bm1684:TARGET",
        "cv18xx": "tpusim.targets.cv18xx:TARGET",
    },
)
"""What each family of chips answers in place of the ops, a `tpusim.interfaces.Target`, by family."""

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
        "softmax": "tpusim.isa.functions.normalised:Softmax",
        "softmax_int": "tpusim.isa.functions.normalised:SoftmaxInt",
        "attention_weights": "tpusim.isa.functions.attention:AttentionWeights",
        "attention": "tpusim.isa.functions.attention:Attention",
        "flash_attention": "tpusim.isa.functions.attention:FlashAttention",
        "flash_mix": "tpusim.isa.functions.attention:FlashMix",
        "flash_scores": "tpusim.isa.functions.attention:FlashScores",
        "softmax_tables": "tpusim.isa.functions.normalised:SoftmaxTables",
        "lrn": "tpusim.isa.functions.normalised:Lrn",
        "lrn_tables": "tpusim.isa.functions.normalised:LrnTables",
        "active": "tpusim.isa.functions.floats:Active",
        "layernorm": "tpusim.isa.functions.normalised:LayerNorm",
        "rmsnorm": "tpusim.isa.functions.normalised:RMSNorm",
        "groupnorm": "tpusim.isa.functions.normalised:GroupNorm",
        "reduce": "tpusim.isa.functions.floats:Reduce",
        "interp": "tpusim.isa.functions.floats:Interp",
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
        "upsample": "tpusim.isa.functions.moved:Upsample",
        "gather": "tpusim.isa.functions.picked:Gather",
        "channel_tables": "tpusim.isa.functions.picked:ChannelTables",
        "yuv_to_bgr": "tpusim.isa.functions.picked:YuvToBgr",
        "arg": "tpusim.isa.functions.picked:Arg",
        "gather_elements": "tpusim.isa.functions.picked:GatherElements",
        "scatter_elements": "tpusim.isa.functions.picked:ScatterElements",
        "topk": "tpusim.isa.functions.picked:TopK",
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
        "calibrate": "tpusim.passes.calibration:Calibrate",
        "canonicalize": "tpusim.passes.canonicalize:Canonicalize",
        "codegen": "tpusim.passes.codegen:Codegen",
        "convert-top-to-tpu": "tpusim.passes.lowering:ConvertTopToTpu",
        "import-calibration-table": "tpusim.passes.calibration:ImportCalibrationTable",
        "layer-group": "tpusim.passes.layer_group:LayerGroup",
        "processor-tpu-optimize": "tpusim.passes.lowering:ProcessorTpuOptimize",
        "set-preprocess": "tpusim.passes.preprocess:SetPreprocess",
        "smoothquant": "tpusim.passes.calibration:Smoothquant",
        "softmax_correction": "tpusim.passes.calibration:SoftmaxCorrection",
        "weight-reorder": "tpusim.passes.lowering:WeightReorder",
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

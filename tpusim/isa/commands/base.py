"""What every command is: where it comes from, and which views it reads and writes."""

from collections.abc import Iterable, Mapping
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self, TypeAlias, cast

import msgspec
from msgspec.structs import replace

from tpusim.chips import ChipSpec
from tpusim.errors import CommandError
from tpusim.isa.commands.requant import Requant
from tpusim.isa.commands.window import Window
from tpusim.isa.decoding import convert
from tpusim.isa.finding import Finding, Rule
from tpusim.isa.region import Length, Memory, View
from tpusim.isa.transfers import KernelTransfers

Engine = Literal["tiu", "gdma"]
Place = tuple[Length, Length, Length, Length, Length]
"""(n, c, d, h, w) of an element, or of a whole tensor."""


class Source(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """What bytes are: a tensor or constant of global memory, or a slice that an op or a load put into local memory.

    name: of the tensor, constant, op or load. group, step: of a slice; both are needed, because two groups may load the
    same tensor in steps of the same name. loaded: a load wrote the slice; an op may have the same name.
    """

    name: str
    group: int = -1
    step: str = ""
    loaded: bool = False

    def __str__(self) -> str:
        """As messages show it: "conv1@g3n0h2" of a slice, else the name."""
        return f"{self.name}@g{self.group}{self.step}" if self.step else self.name


def slice_owner(op: str, step: str, group: int, *, loaded: bool = False) -> Source:
    """The source of a slice in local memory; outside the loop of a group it is the op without a step."""
    return Source(op, group, step, loaded) if step else Source(op)


ANYWHERE: dict[str, Any] = {
    "id": 1, "dep": 0, "core": 0, "op": "", "group": -1, "home": -1, "tensor": "", "sources": (),
}  # fmt: skip
"""The values that a command's form has in the fields that say where the command comes from."""


class Need(NamedTuple):
    """A part of the hardware that only some chips have, and what a rule says where a chip lacks it."""

    unit: Literal["qdm", "small_multiplier", "bf16", "tables", "requant_table"]
    requirement: str
    got: str


class PerChannel(NamedTuple):
    """An operand with elements per channel, the shape it needs, and its element type if that is fixed."""

    name: str
    view: View | None
    shape: tuple[int, ...]
    dtype: str = ""


TILE = "tile"
"""How the steps of a global layer begin: "tile0", "tile1"."""


def tile_step(number: int) -> str:
    """The step of a tile of a global layer."""
    return f"{TILE}{number}"


class Command(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    tag_field="cmd",
    kw_only=True,
    dict=True,
):
    """The fields of every command. Subclasses name their operand views; `reads` and `writes` collect them.

    dict: keeps values that are derived from the fields and read often.
    """

    engine: ClassVar[Engine] = "tiu"
    inputs_: ClassVar[tuple[str, ...]] = ()
    outputs_: ClassVar[tuple[str, ...]] = ("output",)

    works: ClassVar[str] = ""
    """What executes the command, if not its engine alone."""
    on_chip: ClassVar[bool] = True
    """Whether the chip executes the command, so that the clock counts it."""
    memory: ClassVar[Memory | None] = "lmem"
    """Where all operands lie; None: in both memories."""
    rules: ClassVar[tuple[Rule, ...]] = ()
    """Rules for this command only, in local memory and as the body of a global kernel."""
    local_rules: ClassVar[tuple[Rule, ...]] = ()
    """Rules for this command only, in local memory."""
    one_lane: ClassVar[bool] = False
    """Whether operands and result share the start lane."""
    in_every_lane: ClassVar[tuple[str, ...]] = ()
    """Operands that are the same in every lane, or lie in all lanes."""
    elementwise: ClassVar[bool] = False
    """Whether the result may overwrite an operand."""
    replaced: ClassVar[tuple[str, ...]] = ()
    """Operands that the result may overwrite although the command is not element-wise."""
    alignments: ClassVar[Mapping[str, int]] = {}
    """Operand -> bytes of which its address is a multiple."""
    shapes: ClassVar[Literal["", "same", "broadcast"]] = ""
    """Shapes: the first operand has the result's shape ("same"), or all operands broadcast to it ("broadcast")."""
    one_kind: ClassVar[tuple[str, ...]] = ()
    """Operands that are all integers or all floats."""
    four_bits: ClassVar[tuple[str, ...]] = ()
    """Operands whose elements may have 4 bits."""
    product: ClassVar[bool] = False
    """Whether sums of products are requantised in the command itself."""

    id: int
    dep: int
    core: int = 0
    """The core that executes this command; its local operands are in the local memory of that core."""
    op: str
    """Name of the op this command computes for."""
    step: str = ""
    """Slice of the layer group, e.g. "n0h2", or tile of a global layer, "tile3"; empty for neither."""
    group: int = -1
    """Index of the group in the program, in processing order (global layers count as groups of one op)."""
    home: int = -1
    """Group that this step belongs to, if a neighbouring group's loop does the transfer for it; -1: `group`."""
    tensor: str = ""
    """Name of the GMEM tensor this command stores a part of; empty if it stores none."""
    sources: tuple[Source, ...] = ()
    """What every view of `reads()` is meant to contain, in order. Empty: not stated."""
    work: tuple[View, ...] = ()
    """Local memory that the command uses as a work area; its contents afterwards are undefined."""

    @property
    def owner(self) -> Source:
        """The source of the bytes that this command writes, as later commands name it in `sources`."""
        return Source(self.tensor) if self.tensor else self.slice_owner(self.op)

    def slice_owner(self, op: str, *, loaded: bool = False) -> Source:
        """The source of a slice of `op` at the step of this command."""
        return slice_owner(op, self.step, self.group if self.home < 0 else self.home, loaded=loaded)

    @property
    def label(self) -> str:
        """How an error names this command."""
        step = f" step '{self.step}'" if self.step else ""
        place = f"{self.engine} of core {self.core}" if self.core else self.engine
        return f"{type(self).__name__} {self.id} ({place}) of op '{self.op}'{step}"

    @property
    def engines(self) -> tuple[Engine, ...]:
        """The engines that this command keeps busy."""
        return (self.engine,)

    @property
    def stage(self) -> str:
        """Its stage in the pipeline of its group: load, compute or store (layer_group.md 8)."""
        return "compute" if self.engine == "tiu" else "copy"

    @property
    def computed(self) -> "Command":
        """The command that is computed: this one, or the body of a kernel."""
        return self

    @property
    def only_on_host(self) -> bool:
        """Whether no engine of a chip can compute it, so that it is legal as the body of a call of the host alone."""
        return False

    @property
    def window(self) -> Window | None:
        """The window that slides over the input."""
        return None

    @property
    def transposed(self) -> bool:
        """Whether this command is (a part of) a transposed convolution."""
        return False

    @property
    def casts(self) -> bool:
        """Whether this command only changes the type of elements."""
        return False

    def fused_requants(self) -> tuple[Requant, ...]:
        """Every constant requant of this command."""
        return ()

    def needs(self) -> tuple[Need, ...]:
        """The parts of the hardware that it needs and that only some chips have."""
        return ()

    def per_channel(self, chip: ChipSpec) -> list[PerChannel]:
        """The operands with elements for each channel of the result, and the shapes that they need."""
        return []

    def type_misfit(self) -> Finding | None:
        """Why the element types of the operands cannot be combined; None if they can."""
        return None

    def multiplications(self, outputs: int, inputs: int, depth: int = 1) -> int:
        """Multiply-accumulates for this many outputs (if transposed: inputs); depth: factor for further filter taps."""
        return 0

    def cycles(self, chip: ChipSpec) -> int:
        """TIU cycles of this command (hardware.md 5.1). Raises CommandError for a command without a formula."""
        raise CommandError(f"{self.label}: no TIU cycle formula; define {type(self).__name__}.cycles")

    def dma_ns(self, chip: ChipSpec) -> float:
        """Nanoseconds for which this command keeps GDMA busy (hardware.md 5.2)."""
        return 0.0

    def traffic(self) -> tuple[int, int]:
        """(bytes loaded from, bytes stored to) global memory: payload, without padding."""
        return 0, 0

    @property
    def loads(self) -> bool:
        """Whether a kernel loads the operands of this command."""
        return True

    @property
    def counts_transfers(self) -> bool:
        """Whether the cycles of this command count the time of its kernel's transfers too."""
        return False

    def kernel_transfers(self, chip: ChipSpec) -> KernelTransfers | None:
        """The transfers of the library's kernel; None if it loads the operands and stores the result once."""
        del chip
        return None

    def fills_lanes(self, chip: ChipSpec) -> bool:
        """Whether a kernel gives every lane an equal share of its elements, whatever their shape."""
        return self.casts and chip.casts_fill_lanes and self.writes()[0].memory == "gmem"

    def kernel_run(self, view: View, chip: ChipSpec) -> int:
        """Number of adjacent elements of an operand that a library kernel moves at once: a channel's plane."""
        del chip
        return prod(view.shape[2:])

    def pieces(self, chip: ChipSpec) -> float:
        """Number of pieces that it is cut in; one piece is moved while another is computed."""
        return 1.0

    def kernel_tiles(self, chip: ChipSpec) -> int:
        """The least number of tiles that a library kernel needs for this command."""
        return 1

    @property
    def in_group(self) -> bool:
        """Whether this command belongs to a step of a layer group."""
        return bool(self.step) and not self.of_tile

    @property
    def of_tile(self) -> bool:
        """Whether this command belongs to a tile of a global layer."""
        return self.step.startswith(TILE)

    @cached_property
    def form(self) -> "Command":
        """The command without the fields that say where it comes from, except whether it belongs to a tile.

        Commands of equal form are equally legal and take equally long.
        """
        return replace(self, **ANYWHERE, step=self._form_step)

    @property
    def _form_step(self) -> str:
        return tile_step(0) if self.of_tile else ""

    @property
    def content(self) -> dict[str, Any]:
        """The fields that its class adds: the operation and its operands."""
        own = (name for name in self.__struct_fields__ if name not in Command.__struct_fields__)
        return {name: getattr(self, name) for name in own}

    def _views(self, names: tuple[str, ...]) -> list[View]:
        return [view for name, view in self._operands if name in names]

    @classmethod
    def decoded(cls, fields: dict[str, Any]) -> Self:
        """The command with these fields of a line of text. Raises ValueError."""
        return convert(fields, cls)

    def operands(self) -> tuple[tuple[str, View], ...]:
        """Every view of this command with its field name, inputs first."""
        return self._operands

    @cached_property
    def _operands(self) -> tuple[tuple[str, View], ...]:
        found: list[tuple[str, View]] = []
        for name in (*self.inputs_, *self.outputs_):
            value: Any = getattr(self, name)
            if type(value) is View:
                found.append((name, value))
            elif type(value) is tuple:
                found += [(name, item) for item in cast("tuple[Any, ...]", value) if type(item) is View]
        return tuple(found)

    def with_operands(self, views: Iterable[View]) -> Self:
        """The command with other operands, in the order of `operands`."""
        rest = iter(views)

        def replaced(value: Any) -> Any:
            if type(value) is View:
                return next(rest)
            if type(value) is tuple:
                return tuple(replaced(item) for item in cast("tuple[Any, ...]", value))
            return value

        return replace(self, **{name: replaced(getattr(self, name)) for name in (*self.inputs_, *self.outputs_)})

    def local_operands(self) -> list[tuple[str, View]]:
        """The operands in local memory, with their names."""
        return [(name, view) for name, view in self._operands if view.memory == "lmem"]

    def reads(self) -> tuple[View, ...]:
        """Every view this command reads."""
        return tuple(self._views(self.inputs_))

    def writes(self) -> tuple[View, ...]:
        """Every view this command writes."""
        return tuple(self._views(self.outputs_))

    def least_work(self, chip: ChipSpec) -> int:
        """Bytes in every lane that its work areas need in a layer group; 0: its fields do not determine them."""
        return 0

    def scratch(self) -> tuple[View, ...]:
        """Every view whose bytes are undefined after this command: (1, lanes, 1, bytes) u8, compact."""
        return self.work


if TYPE_CHECKING:
    TiuCommand: TypeAlias = Command
else:
    TiuCommand = Any
"""What a global kernel computes. msgspec has no type for "any subclass"; `tpusim.isa.text` checks it."""

"""What every command is: where it comes from, and which views it reads and writes."""

from collections.abc import Mapping
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

Engine = Literal["tiu", "gdma"]
Place = tuple[Length, Length, Length, Length, Length]
"""(n, c, d, h, w) of an element, or of a whole tensor."""


class Source(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """What bytes are: a tensor or constant of global memory, or a slice that an op or a load put into local memory.

    name: of the tensor or constant; of the op or load. group, step: of a slice; both, as two groups may load one tensor
    and call their steps alike. loaded: a load put it there, whose name may be that of an op.
    """

    name: str
    group: int = -1
    step: str = ""
    loaded: bool = False

    def __str__(self) -> str:
        """As messages show it: "conv1@g3n0h2" of a slice, else the name."""
        return f"{self.name}@g{self.group}{self.step}" if self.step else self.name


def slice_owner(op: str, step: str, group: int, *, loaded: bool = False) -> Source:
    """Whose bytes a slice in local memory is made of; outside the loop of a group that is the op."""
    return Source(op, group, step, loaded) if step else Source(op)


ANYWHERE: dict[str, Any] = {
    "id": 1, "dep": 0, "core": 0, "op": "", "group": -1, "home": -1, "tensor": "", "sources": (),
}  # fmt: skip
"""What the form of a command has in place of where it comes from."""


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
    """What every command carries. Subclasses name their operand views; `reads` and `writes` find them.

    dict: for what is found out of the fields and asked for often.
    """

    engine: ClassVar[Engine] = "tiu"
    inputs_: ClassVar[tuple[str, ...]] = ()
    outputs_: ClassVar[tuple[str, ...]] = ("output",)

    works: ClassVar[str] = ""
    """What executes it, where that is not its engine alone."""
    on_chip: ClassVar[bool] = True
    """Whether the chip does this, so that its clock counts it."""
    memory: ClassVar[Memory | None] = "lmem"
    """Where all operands lie; None: in both memories."""
    rules: ClassVar[tuple[Rule, ...]] = ()
    """What is legal for this command only, in local memory and as the body of a global kernel."""
    local_rules: ClassVar[tuple[Rule, ...]] = ()
    """What is legal for this command only, in local memory."""
    one_lane: ClassVar[bool] = False
    """Whether operands and result share the start lane."""
    in_every_lane: ClassVar[tuple[str, ...]] = ()
    """Operands that are the same in every lane, or lie in all lanes."""
    elementwise: ClassVar[bool] = False
    """Whether the result may take the place of an operand."""
    replaced: ClassVar[tuple[str, ...]] = ()
    """Operands whose place the result may take although the command is not elementwise."""
    alignments: ClassVar[Mapping[str, int]] = {}
    """Operand -> bytes of which its address is a multiple."""
    shapes: ClassVar[Literal["", "same", "broadcast"]] = ""
    """How the operands' shapes stand to the result's: the first operand's is the same, or all of them broadcast."""
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
    """Slice of the layer group, e.g. "n0h2", or tile of a global layer, "tile3"; empty where it has none."""
    group: int = -1
    """Index of the group in the program, in processing order (global layers count as groups of one op)."""
    home: int = -1
    """Group whose step this is, where a neighbour does a transfer for it in its own loop; -1: `group`."""
    tensor: str = ""
    """Name of the GMEM tensor this command stores a part of; empty if it stores none."""
    sources: tuple[Source, ...] = ()
    """What every view of `reads()` is meant to hold, in order. Empty: not said."""
    work: tuple[View, ...] = ()
    """Local memory that the command uses for itself: what is there afterwards is nobody's."""

    @property
    def owner(self) -> Source:
        """Whose bytes this command writes, as `sources` of later commands name them."""
        return Source(self.tensor) if self.tensor else self.slice_owner(self.op)

    def slice_owner(self, op: str, *, loaded: bool = False) -> Source:
        """Whose bytes a slice of `op` is made of at the step of this command."""
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
        """What it does in the pipeline of its group: load, compute, store (layer_group.md 8)."""
        return "compute" if self.engine == "tiu" else "copy"

    @property
    def computed(self) -> "Command":
        """The command that says what is computed: itself, or what a kernel computes."""
        return self

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
        """What only some chips have."""
        return ()

    def per_channel(self, chip: ChipSpec) -> list[PerChannel]:
        """The operands that have their elements per channel of the result, with the shapes that they need."""
        return []

    def type_misfit(self) -> Finding | None:
        """Why the element types of the operands do not go together; None if they do."""
        return None

    def multiplications(self, outputs: int, inputs: int, depth: int = 1) -> int:
        """Multiply-accumulates for so many outputs, and inputs if it is transposed; depth: further filter taps."""
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

    def fills_lanes(self, chip: ChipSpec) -> bool:
        """Whether a kernel gives every lane an equal share of its elements, whatever their shape."""
        return self.casts and chip.casts_fill_lanes and self.writes()[0].memory == "gmem"

    def kernel_run(self, view: View) -> int:
        """Neighbouring elements of an operand that a library kernel moves at once: planes of channels."""
        return prod(view.shape[2:])

    def pieces(self, chip: ChipSpec) -> float:
        """How many pieces it goes through, of which one is moved while another is computed."""
        return 1.0

    def kernel_tiles(self, chip: ChipSpec) -> int:
        """Tiles that a library kernel needs at least for this command."""
        return 1

    @property
    def in_group(self) -> bool:
        """Whether this command is one of a step of a layer group."""
        return bool(self.step) and not self.of_tile

    @property
    def of_tile(self) -> bool:
        """Whether this command is one of a tile of a global layer."""
        return self.step.startswith(TILE)

    @cached_property
    def form(self) -> "Command":
        """The command without what says where it comes from, but for being of a tile: equal ones are as legal and
        take as long.
        """
        return replace(self, **ANYWHERE, step=self._form_step)

    @property
    def _form_step(self) -> str:
        return tile_step(0) if self.of_tile else ""

    @property
    def content(self) -> dict[str, Any]:
        """The fields that its class adds: what is done, and with which operands."""
        own = (name for name in self.__struct_fields__ if name not in Command.__struct_fields__)
        return {name: getattr(self, name) for name in own}

    def _views(self, names: tuple[str, ...]) -> list[View]:
        return [view for name, view in self._operands if name in names]

    @classmethod
    def decoded(cls, fields: dict[str, Any]) -> Self:
        """The command of these fields, as a line has them. Raises ValueError."""
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

    def local_operands(self) -> list[tuple[str, View]]:
        """The operands in local memory, with their names."""
        return [(name, view) for name, view in self._operands if view.memory == "lmem"]

    def reads(self) -> tuple[View, ...]:
        """Every view this command reads."""
        return tuple(self._views(self.inputs_))

    def writes(self) -> tuple[View, ...]:
        """Every view this command writes."""
        return tuple(self._views(self.outputs_))

    def scratch(self) -> tuple[View, ...]:
        """Every view whose bytes this command leaves as nobody's: (1, lanes, 1, bytes) u8, compact."""
        return self.work


if TYPE_CHECKING:
    TiuCommand: TypeAlias = Command
else:
    TiuCommand = Any
"""What a global kernel computes. msgspec has no type for "any subclass"; `tpusim.isa.text` checks it."""

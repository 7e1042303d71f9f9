"""A front end for text files of layers, a line each: `y = squared_relu x`.

x = input 1x4x8x8
a = relu x
y = squared_relu a
"""

from pathlib import Path

from xdsl.ir import SSAValue

from tpusim.errors import ImportModelError, UnsupportedError
from tpusim.frontend import WHOLE, Cut, FrontEnd
from tpusim.frontend.front_ends import Shapes
from tpusim.ir.module import Model
from tpusim.ops.framework.builder import ModuleBuilder
from tpusim.ops.relu import TopRelu
from tpusim_demo.top import TopSquaredRelu

KINDS = {"relu": TopRelu, "squared_relu": TopSquaredRelu}


class LayersFrontEnd(FrontEnd):
    """The last line's tensor is the result."""

    def read(self, path: Path, *, input_shapes: Shapes | None = None, cut: Cut = WHOLE) -> Model:
        """The layers in order. Raises ImportModelError that names the line, UnsupportedError for a cut."""
        if cut != WHOLE:
            raise UnsupportedError(f"model '{path}': a file of layers is not cut; leave --inputs and --outputs out")
        builder, values = ModuleBuilder(), dict[str, SSAValue]()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            match line.split():
                case []:
                    pass
                case [name, "=", "input", shape]:
                    extents = (input_shapes or {}).get(name) or [int(extent) for extent in shape.split("x")]
                    values[name] = builder.input(name, extents)
                case [name, "=", kind, operand] if kind in KINDS and operand in values:
                    values[name] = KINDS[kind].make(builder, values[operand], name=name)
                case _:
                    raise ImportModelError(
                        f"model '{path}', line {number}: NAME = KIND OPERAND is required, KIND one of "
                        f"{', '.join(KINDS)}, or NAME = input 1x4x8x8, got '{line}'"
                    )
        return builder.finish(list(values.values())[-1:], name=path.stem)


LAYERS = LayersFrontEnd()

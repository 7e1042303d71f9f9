"""Pictures of a module: its ops, what reads what, and its layer groups, as Graphviz text and as SVG."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from xdsl.ir import Operation, SSAValue

from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model, is_weight
from tpusim.ir.types import element_of, is_tensor, shape_of

ROW, LETTER, LEFT, BOX = 26, 7.2, 16, 20
"""Of the SVG: from row to row, the width of a letter, the margin, and the height of a box."""
COLOURS = {"top": "#dbe9f6", "tpu": "#e3f3df"}
FRAME = "#8a8a8a"


@dataclass(frozen=True)
class Node:
    """An op. reads: positions of the ops whose results it reads; group: the position of its layer group, None: none."""

    kind: str
    name: str
    type: str
    reads: tuple[int, ...]
    group: int | None

    @property
    def label(self) -> str:
        """What is written on it."""
        return "  ".join(word for word in (self.kind, self.name, self.type) if word)


def nodes(model: Model) -> list[Node]:
    """The ops of a module in program order, those of layer groups in their place; constants are left out."""
    found, made = list[Node](), dict[SSAValue, int]()
    for number, op in enumerate(op for op in model.ops if not _constant(op)):
        inner = list(op.regions[0].block.ops) if op.regions else []
        for one in inner or [op]:
            if _constant(one):
                continue
            reads = tuple(dict.fromkeys(made[value] for value in one.operands if value in made))
            if inner and not one.results:  # the end of a group: its operands are the group's results
                made |= {a: made[b] for a, b in zip(op.results, one.operands, strict=True) if b in made}
                continue
            made |= dict.fromkeys(one.results, len(found))
            found.append(Node(one.name, op_name(one), _type(one), reads, number if inner else None))
    return found


def _constant(op: Operation) -> bool:
    """Whether an op is a weight, or stands for an operand that is absent."""
    return is_weight(op) or (len(op.results) == 1 and not op.operands and not is_tensor(op.results[0]))


def _type(op: Operation) -> str:
    if not op.results or not is_tensor(op.results[0]):
        return ""
    shape, element = "x".join(map(str, shape_of(op.results[0]))), str(element_of(op.results[0]))
    quantised = re.match(r"!quant\.(\w+)<(\w+)", element)
    return f"{shape} {f'{quantised[2]} {quantised[1]}' if quantised else element}"


def dot(model: Model) -> str:
    """The module in Graphviz's language, each layer group a cluster."""
    return "\n".join(_dot_lines(model)) + "\n"


def _dot_lines(model: Model) -> Iterator[str]:
    found = nodes(model)
    yield f"digraph {_quoted(model.name or 'module')} {{"
    yield '  node [shape=box, style=filled, fontname="sans-serif"];'
    for i, node in enumerate(found):
        colour = COLOURS.get(node.kind.partition(".")[0], "white")
        line = f"n{i} [label={_quoted(node.label)}, fillcolor={_quoted(colour)}];"
        yield f"  subgraph cluster_{node.group} {{ {line} }}" if node.group is not None else f"  {line}"
    yield from (f"  n{source} -> n{i};" for i, node in enumerate(found) for source in node.reads)
    yield "}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def svg(model: Model) -> str:
    """The module as SVG: a row for each op, arcs from what makes a tensor to what reads it, frames for layer groups."""
    found = nodes(model)
    width = max((len(node.label) for node in found), default=0) * LETTER + 12
    reach = max((i - source for i, node in enumerate(found) for source in node.reads), default=0)
    size = f'width="{LEFT * 2 + width + 20 + 6 * min(reach, 40):.0f}" height="{ROW * len(found) + 2 * LEFT}"'
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="monospace" font-size="12">']
    lines.append(f"<title>{escape(model.name)}: {escape(model.state)}</title>")
    lines += (_frame(found, group, width) for group in sorted({n.group for n in found if n.group is not None}))
    lines += (_box(node, _y(i), width) for i, node in enumerate(found))
    lines += (_edge(source, i, width) for i, node in enumerate(found) for source in node.reads)
    return "\n".join([*lines, "</svg>"]) + "\n"


def _y(row: int) -> int:
    return LEFT + ROW * row


def _box(node: Node, y: int, width: float) -> str:
    colour = COLOURS.get(node.kind.partition(".")[0], "white")
    box = f'<rect x="{LEFT}" y="{y}" width="{width:.0f}" height="{BOX}" fill="{colour}" stroke="{FRAME}"/>'
    return f'{box}<text x="{LEFT + 6}" y="{y + 14}" xml:space="preserve">{escape(node.label)}</text>'


def _frame(found: list[Node], group: int, width: float) -> str:
    rows = [i for i, node in enumerate(found) if node.group == group]
    y, height = _y(rows[0]) - 3, ROW * (rows[-1] - rows[0]) + BOX + 6
    return (
        f'<rect x="{LEFT - 4}" y="{y}" width="{width + 8:.0f}" height="{height}" fill="#f4f4f4" stroke="{FRAME}" '
        'stroke-dasharray="4 2"/>'
    )


def _edge(source: int, target: int, width: float) -> str:
    """Straight down to the next row, else an arc on the right, the wider the further it goes."""
    style = f'fill="none" stroke="{FRAME}"'
    if target == source + 1:
        return f'<path d="M {LEFT + 10} {_y(source) + BOX} V {_y(target)}" {style}/>'
    x, out = LEFT + width, LEFT + width + 12 + 6 * min(target - source, 40)
    y1, y2 = _y(source) + BOX // 2, _y(target) + BOX // 2
    return f'<path d="M {x:.0f} {y1} C {out:.0f} {y1}, {out:.0f} {y2}, {x:.0f} {y2}" {style}/>'

"""The steps of a folder, each checked against the one before."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
from xdsl.dialects.builtin import ArrayAttr
from xdsl.ir import Attribute, Operation, SSAValue

from tpusim import chips
from tpusim.codegen.program import generate
from tpusim.errors import ImportModelError, TpusimError, UnsupportedError
from tpusim.inference.executor import run
from tpusim.ir.attrs import ints, op_name, value_name
from tpusim.ir.dialects import context
from tpusim.ir.module import Model, load_model
from tpusim.ir.types import is_tensor, uniform_of
from tpusim.lowering import LoweringConfig
from tpusim.ops.structure import TopWeight
from tpusim.passes import PassContext, PassManager, pipelines
from tpusim.simulator import simulate
from tpusim.studies.verification.folder import Folder
from tpusim.verify.npz import Tensor

IMPORTED = 1e-4
"""Largest difference of f32 tensors, as a share of the largest value: sums are added in other orders."""
NARROW = 5e-3
"""The same where some are f16 or bf16: steps of the type, a few ops long."""
Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class Step:
    """One check. problem: what is wrong; unchecked: why tpusim cannot tell."""

    file: str
    against: str
    problem: str = ""
    unchecked: str = ""


def steps_of(folder: Folder) -> Iterator[Step]:
    """All checks in order, up to the first problem of each chain of files."""
    top: Tensors | None = None
    for step, tensors in _imported(folder):
        yield step
        top = tensors or top
        if step.problem:
            return
    for lowered in folder.lowered:
        for step in _compiled(folder, lowered):
            yield step
            if step.problem:
                break


def _imported(folder: Folder) -> Iterator[tuple[Step, Tensors | None]]:
    """The imported module and the module after its passes: the same results, and those of the references."""
    computed: Tensors | None = None
    for path, against in ((folder.origin, "its own shapes"), (folder.top, "the module as it was imported")):
        if path is None:
            continue
        found = _computed(folder, path)
        if isinstance(found, Step):
            yield found, None
            continue
        model, tensors = found
        wanted = None if computed is None else {n: computed[n] for n in _results(model) if n in computed}
        yield (
            Step(path.name, against, "" if wanted is None else _first_float(model, tensors, wanted, IMPORTED)),
            tensors,
        )
        computed = tensors
        for name, reference in folder.references(f"{folder.name}_top") if path == folder.top else ():
            yield Step(path.name, name, _first_float(model, tensors, reference, IMPORTED)), tensors


def _compiled(folder: Folder, lowered: Path) -> Iterator[Step]:
    """A lowered module and its final module."""
    found = _computed(folder, lowered)
    if isinstance(found, Step):
        yield found
        return
    model, tensors = found
    yield _against_lowering(folder, lowered, model)
    for name, reference in folder.references(lowered.stem):
        yield Step(lowered.name, name, _first_stored(model, tensors, reference))
    if (final := folder.final_of(lowered)) is not None:
        chip = chips.of(model)
        if chip.hardware.coefficients == "merged":
            yield from _final(folder, final, tensors, lowered.name)
        else:
            why = f"the coefficients of a final module are not read in TPU-MLIR's layout for {chip.name}"
            yield Step(final.name, lowered.name, unchecked=why)


def _final(folder: Folder, final: Path, lowered: Tensors, before: str) -> Iterator[Step]:
    """A final module: the tensors of the lowered one, flat and on the machine, and the reference of the chip."""
    found = _computed(folder, final)
    if isinstance(found, Step):
        yield found
        return
    model, tensors = found
    yield Step(final.name, before, _first_equal(model, tensors, lowered))
    machine: Tensors = {}
    try:
        machine = simulate(generate(model), folder.sample).tensors
        problem = _first_equal(model, machine, tensors)
    except TpusimError as error:
        problem = str(error)
    yield Step(final.name, "its commands on the machine: groups, slices, addresses", problem)
    stem = final.name.removesuffix("_final.mlir") + "_model"
    for name, reference in folder.references(stem) if machine else ():
        yield Step(final.name, name, _first_float(model, machine, reference, NARROW))


def _computed(folder: Folder, path: Path) -> tuple[Model, Tensors] | Step:
    """A module and all its tensors; a step that says why there are none."""
    try:
        model = load_model(path, context())
        return model, run(model, folder.sample)
    except UnsupportedError as error:
        return Step(path.name, "arithmetic", unchecked=str(error))
    except ImportModelError as error:
        text = str(error)
        known = "tpusim does not compute it" in text or "the same as" in text
        return Step(path.name, "itself", **({"unchecked": text} if known else {"problem": text}))


def _values(model: Model) -> Iterator[SSAValue]:
    return (v for op in model.module.walk() for v in op.results if is_tensor(v))


def _results(model: Model) -> list[str]:
    return [value_name(v) for v in model.results]


def _in_order(model: Model, ours: Tensors, theirs: Tensors) -> Iterator[str]:
    """The names of the tensors that both have, in program order."""
    return (name for v in _values(model) if (name := value_name(v)) in ours and name in theirs)


def _first(
    model: Model, ours: Tensors, theirs: Tensors, wrong: Callable[[str, np.ndarray, np.ndarray], str]
) -> str:  # fmt: skip
    """The first tensor that is wrong, with by how much."""
    for name in _in_order(model, ours, theirs):
        mine, other = np.asarray(ours[name]), np.asarray(theirs[name])
        if mine.size != other.size:
            return f"tensor '{name}' has {mine.size} elements, {other.size} are expected"
        if why := wrong(name, mine.astype(np.float64).ravel(), other.astype(np.float64).ravel()):
            return f"tensor '{name}': {why}"
    return ""


def _first_float(model: Model, ours: Tensors, theirs: Tensors, share: float) -> str:
    """The first tensor that is further away than a share of its largest value."""

    def wrong(name: str, mine: np.ndarray, other: np.ndarray) -> str:
        del name
        far = np.abs(mine - other).max(initial=0.0)
        most = share * max(np.abs(other).max(initial=0.0), 1e-6)
        return f"differs by up to {far:.3g}, at most {most:.3g} is expected" if not far <= most else ""

    return _first(model, ours, theirs, wrong)


def _first_equal(model: Model, ours: Tensors, theirs: Tensors) -> str:
    """The first tensor of integers that is not equal, or of floats that is far away."""
    integers = {value_name(v) for v in _values(model) if uniform_of(v) is not None}

    def wrong(name: str, mine: np.ndarray, other: np.ndarray) -> str:
        if name in integers:
            return _unequal(mine, other)
        far, most = np.abs(mine - other).max(initial=0.0), NARROW * max(np.abs(other).max(initial=0.0), 1e-6)
        return f"differs by up to {far:.3g}, at most {most:.3g} is expected" if not far <= most else ""

    return _first(model, ours, theirs, wrong)


def _first_stored(model: Model, ours: Tensors, theirs: Tensors) -> str:
    """As `_first_equal`, where quantised tensors of the other side are real numbers."""
    types = {value_name(v): uniform_of(v) for v in _values(model)}
    stored = {
        name: np.rint(np.asarray(array) / u.scale.data) + u.zero_point.value.data
        if (u := types.get(name)) is not None else array
        for name, array in theirs.items()
    }  # fmt: skip
    return _first_equal(model, ours, stored)


def _unequal(mine: np.ndarray, other: np.ndarray) -> str:
    """How many integers differ, and the first one."""
    different = np.flatnonzero(mine != other)
    if not different.size:
        return ""
    i = int(different[0])
    return f"{different.size} of {mine.size} values differ, the first is {other[i]:.0f} and should be {mine[i]:.0f}"


def _against_lowering(folder: Folder, path: Path, model: Model) -> Step:
    """The scales, requants and constants of every op that lowering the module of the step before makes too."""
    against = f"{folder.top.name} and the calibration table, lowered here"
    try:
        config = LoweringConfig(model.attribute("module.chip"), model.attribute("module.mode").lower())
        table = folder.table if config.format.calibrated else None
        passes = pipelines.calibrated(asymmetric=False)[-1:] if table is not None else ()
        top = load_model(folder.top, context())
        mine = PassManager((*passes, *pipelines.lowered(config)[:-1])).run(top, PassContext(table=table))
    except TpusimError as error:
        return Step(path.name, against, unchecked=str(error))
    return Step(path.name, against, _first_op(mine, model))


def _first_op(mine: Model, theirs: Model) -> str:
    """The first op of both modules with another scale, requant or constant."""
    known = {op_name(op): op for op in mine.ops if op_name(op)}
    for op in theirs.ops:
        same = known.get(op_name(op))
        if same is not None and same.name == op.name and (why := _other_op(same, mine, op, theirs)):
            return f"{op.name} '{op_name(op)}': {why}"
    return ""


REQUANT = ("multiplier", "multipliers", "rshift", "rshifts")


def _other_op(mine: Operation, model: Model, theirs: Operation, their_model: Model) -> str:
    scales = [[u.scale.data for v in op.results if (u := uniform_of(v)) is not None] for op in (mine, theirs)]
    for a, b in zip(*scales, strict=False):
        if not np.isclose(a, b, rtol=1e-6):
            return f"its scale is {b:.8g} and should be {a:.8g}"
    for name in REQUANT:
        a, b = mine.attributes.get(name), theirs.attributes.get(name)
        if a is not None and b is not None and _numbers(a) != _numbers(b):
            return f"{name} is {_shown(_numbers(b))} and should be {_shown(_numbers(a))}"
    for number, (a, b) in enumerate(zip(mine.operands, theirs.operands, strict=False)):
        if isinstance(a.owner, TopWeight) and isinstance(b.owner, TopWeight):
            x = model.weights[op_name(a.owner)].ravel()
            y = their_model.weights[op_name(b.owner)].ravel()
            if x.size == y.size and x.dtype == y.dtype and x.dtype.kind in "iu" and (why := _unequal(x, y)):
                return f"weight '{op_name(b.owner)}' (operand {number}): {why}"
    return ""


def _numbers(attribute: Attribute) -> tuple[int, ...]:
    several = cast("ArrayAttr[Attribute]", attribute) if isinstance(attribute, ArrayAttr) else ArrayAttr([attribute])
    return ints(several)


def _shown(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers[:4])) + (" ..." if len(numbers) > 4 else "")  # noqa: PLR2004

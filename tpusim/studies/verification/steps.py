"""The steps of a folder, each checked against the one before."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path

import numpy as np
from xdsl.ir import Attribute, Operation, SSAValue

from tpusim.calibration.table import read_table
from tpusim.codegen.program import generate
from tpusim.errors import CalibrationError, ConfigError, TpusimError, UnsupportedError
from tpusim.inference import input_specs
from tpusim.inference.executor import run
from tpusim.inference.replay import float_upstream, replay
from tpusim.ir.attrs import op_name, value_name
from tpusim.ir.dialects import context
from tpusim.ir.module import ANY_CHIP, Model, State, load_model
from tpusim.ir.types import element_of, is_tensor, shape_of, storage_dtype, uniform_of
from tpusim.ir.upstream.table import entry
from tpusim.ir.upstream.values import plain
from tpusim.lowering import lowered_as
from tpusim.numbers.closeness import MASK
from tpusim.ops.structure import TopInput, TopWeight
from tpusim.passes import PassContext, PassManager, pipelines
from tpusim.proof import prove
from tpusim.simulator import Simulator
from tpusim.studies.verification.folder import FINAL, LOWERED, Folder
from tpusim.verify.npz import Tensor, load_tensors

IMPORTED = 1e-4
"""Largest difference of f32 tensors, as a share of the largest value: sums are added in other orders."""
NARROW = 5e-3
"""The same where some are f16 or bf16: steps of the type, a few ops long."""
MISSING = "the folder does not have the file"
NO_WEIGHTS = "the folder does not have its weights; model_transform.py and model_deploy.py leave them with --debug"
COMPARE_ALL = "model_deploy.py with --compare_all leaves them"
SHOWN = 4
"""Elements of a list that a message shows."""
NOTHING = "no tensor of one side has the name of one of the other side"
STEPS = 0.1
"""Largest difference, as a share of the largest value, that integers rounded from floats may cause in later ops."""
Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class Verdict:
    """Of a comparison. problem: the first tensor that is wrong; unchecked: why tpusim cannot tell; none: all right."""

    problem: str = ""
    unchecked: str = ""


Compare = Callable[[Tensors], Verdict]
"""Compares with other tensors."""


@dataclass(frozen=True)
class Step:
    """One check. problem: what is wrong; unchecked: why tpusim cannot tell."""

    file: str
    against: str
    problem: str = ""
    unchecked: str = ""


def steps_of(folder: Folder) -> Iterator[Step]:
    """All checks in order, up to the first problem of each chain of files. Raises ConfigError for another folder."""
    top = folder.top
    for name, array in folder.sample.items():
        if why := _no_numbers(array):
            raise ConfigError(f"folder '{folder.path}', input '{name}': {why}")
    for step in _imported(folder):
        yield step
        if step.problem:
            return
    if not folder.lowered:
        yield Step(f"{folder.name}_*{LOWERED}", top.name, unchecked=MISSING)
    for lowered in folder.lowered:
        for step in _compiled(folder, lowered):
            yield step
            if step.problem:
                break


def _imported(folder: Folder) -> Iterator[Step]:
    """The imported module and the module after its passes: the same results, and those of the references."""
    origin, top = _computed(folder, folder.origin), _computed(folder, folder.top)
    yield origin if isinstance(origin, Step) else Step(folder.origin.name, "its own shapes")
    if isinstance(top, Step):
        yield top
        return
    model, tensors = top
    close = partial(_first_float, model, tensors, share=IMPORTED)
    if not isinstance(origin, Step):
        results = {name: origin[1][name] for name in _results(model) if name in origin[1]}
        yield _step(folder.top, "the module as it was imported", results, close)
    yield _against_reference(folder, folder.top, f"{folder.name}_top", close)


def _compiled(folder: Folder, lowered: Path) -> Iterator[Step]:
    """A lowered module and its final module."""
    found = _computed(folder, lowered)
    if isinstance(found, Step):
        yield found
        return
    model, tensors = found
    yield _against_lowering(folder, lowered, model)
    yield _against_reference(folder, lowered, lowered.stem, Reference(model, tensors, folder.sample).compare)
    yield from _final(folder, folder.final_of(lowered), model, tensors, lowered.name)


def _final(folder: Folder, final: Path, before: Model, lowered: Tensors, name: str) -> Iterator[Step]:
    """A final module: the tensors of the lowered one, flat and on the machine, and the reference of the chip."""
    found = _computed(folder, final)
    if isinstance(found, Step):
        yield found
        return
    model, tensors = found
    if problem := _other_statement(before, model) or _other_names(model):
        yield Step(final.name, name, problem)
        return
    yield _step(final, name, lowered, partial(_first_equal, model, tensors))
    against = "its commands on the machine: groups, slices, addresses"
    try:
        simulator = Simulator(generate(model))
        machine = simulator.run(folder.sample, watch=True).tensors
    except TpusimError as error:
        yield Step(final.name, against, str(error))
        return
    flat = {**tensors, **replay(before, {**folder.sample, **machine})}
    yield _step(final, against, flat, partial(_first_equal, model, machine))
    yield _proven(final, model, simulator)
    stem = final.name.removesuffix(FINAL) + "_model"
    yield _against_reference(folder, final, stem, Reference(before, machine, folder.sample).compare)


def _proven(final: Path, model: Model, machine: Simulator) -> Step:
    """Whether the commands compute the module for all inputs; unchecked if ops could not be judged."""
    proof = prove(model, machine)
    wrong = [f"{proof.wrong.headline}: {proof.why}"] if proof.wrong is not None else proof.declared
    unjudged = [f"{name} ({why})" for name, why in proof.unjudged.items()]
    return Step(final.name, "its commands, for all inputs", "; ".join(wrong), "" if wrong else ", ".join(unjudged))


def _step(file: Path, against: str, theirs: Tensors, compare: Compare) -> Step:
    """The comparison with tensors of the other side."""
    found = compare(theirs)
    return Step(file.name, against, found.problem, found.unchecked)


def _against_reference(folder: Folder, file: Path, stem: str, compare: Compare) -> Step:
    """The comparison with a file of tensors that TPU-MLIR computed."""
    path = folder.reference(stem)
    if not path.exists():
        return Step(file.name, path.name, unchecked=MISSING)
    try:
        reference = load_tensors(path)
    except TpusimError as error:
        return Step(file.name, path.name, str(error))
    for name, array in reference.items():
        if why := _no_numbers(array):
            return Step(file.name, path.name, f"tensor '{name}': {why}")
    return _step(file, path.name, reference, compare)


def _no_numbers(array: Tensor) -> str:
    return "" if array.dtype.kind in "biuf" else f"an array of numbers is required, got {array.dtype}"


def _computed(folder: Folder, path: Path) -> tuple[Model, Tensors] | Step:
    """A module and all its tensors; a step that says why there are none."""
    if not path.exists():
        return Step(path.name, "itself", unchecked=MISSING)
    try:
        model = load_model(path, context())
        return model, run(model, folder.sample)
    except UnsupportedError as error:
        return Step(path.name, "itself", unchecked=str(error))
    except TpusimError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return Step(path.name, "itself", unchecked=NO_WEIGHTS)
        return Step(path.name, "itself", str(error))


def _values(model: Model) -> Iterator[SSAValue]:
    return (v for op in model.module.walk() for v in op.results if is_tensor(v))


def _results(model: Model) -> list[str]:
    return [value_name(v) for v in model.results]


def _in_order(model: Model, ours: Tensors, theirs: Tensors) -> Iterator[str]:
    """The names of the tensors that both have, in program order."""
    return (name for v in _values(model) if (name := value_name(v)) in ours and name in theirs)


def _first(
    model: Model, ours: Tensors, theirs: Tensors, wrong: Callable[[str, np.ndarray, np.ndarray], str]
) -> Verdict:
    """The first tensor that is wrong, with by how much; unchecked if no tensor is on both sides."""
    names = list(_in_order(model, ours, theirs))
    for name in names:
        mine, other = np.asarray(ours[name]), np.asarray(theirs[name])
        if mine.size != other.size:
            return Verdict(f"tensor '{name}' has {mine.size} elements, {other.size} are expected")
        if why := wrong(name, mine.astype(np.float64).ravel(), other.astype(np.float64).ravel()):
            return Verdict(f"tensor '{name}': {why}")
    return Verdict() if names else Verdict(unchecked=NOTHING)


def far_apart(mine: np.ndarray, other: np.ndarray, share: float) -> str:
    """How far floats are apart, if by more than a share of the largest value; masks are no values, NaN equals NaN."""
    values = np.abs(other)
    most = share * max(values.max(initial=0.0, where=values < MASK), 1e-6)
    limits = np.where(values < MASK, most, share * values)
    with np.errstate(invalid="ignore"):
        apart = np.abs(mine - other)
        right = (apart <= limits) & np.isfinite(apart) | (mine == other) | (np.isnan(mine) & np.isnan(other))
    if right.all():
        return ""
    i = int(np.flatnonzero(~right)[0])
    if not np.isfinite(apart[~right]).all():
        i = int(np.flatnonzero(~right & ~np.isfinite(apart))[0])
        return f"element {i} is {mine[i]:.3g}, {other[i]:.3g} is expected"
    return f"differs by up to {apart[~right].max():.3g}, at most {limits[i]:.3g} is expected"


def _first_float(model: Model, ours: Tensors, theirs: Tensors, *, share: float) -> Verdict:
    """The first tensor that is further away than a share of its largest value."""
    return _first(model, ours, theirs, lambda _, mine, other: far_apart(mine, other, share))


def _first_equal(model: Model, ours: Tensors, theirs: Tensors) -> Verdict:
    """The first tensor of integers that is not equal, or of floats that is far away."""
    integers = _integers(model)

    def wrong(name: str, mine: np.ndarray, other: np.ndarray) -> str:
        return _unequal(mine, other) if name in integers else far_apart(mine, other, NARROW)

    return _first(model, ours, theirs, wrong)


def _integers(model: Model) -> set[str]:
    return {value_name(v) for v in _values(model) if uniform_of(v) is not None}


@dataclass(frozen=True)
class Reference:
    """Compares the tensors of a lowered module, or of a program made of it, with those that TPU-MLIR computed.

    After a float op, ours are recomputed from the operands that the reference has: an integer is rounded from floats
    that differ in the last place. Where the reference lacks them, a small difference is unchecked.
    """

    model: Model
    ours: Tensors
    sample: Tensors

    def compare(self, reference: Tensors) -> Verdict:
        """The first tensor of integers that is not equal, or of floats that is far away."""
        theirs = stored(self.model, reference)
        again, integers = replay(self.model, {**self.sample, **theirs}), _integers(self.model)
        unsteady, unsure = _unsteady(self.model, theirs), list[str]()

        def wrong(name: str, mine: np.ndarray, other: np.ndarray) -> str:
            why = _unequal(mine, other) if name in integers else far_apart(mine, other, NARROW)
            if why and name in unsteady and not far_apart(mine, other, STEPS):
                unsure.append(f"tensor '{name}', which follows floats that the reference does not have: {why}")
                return ""
            return why

        found = _first(self.model, {**self.ours, **again}, theirs, wrong)
        return found if found.problem or not unsure else Verdict(unchecked=f"{unsure[0]}; {COMPARE_ALL}")


def _unsteady(model: Model, theirs: Tensors) -> set[str]:
    """Tensors that the last place of a float of ours may change by more: integers made of it, and what follows.

    theirs: tensors that stand for ours.
    """
    floats, found = float_upstream(model), set[str]()
    for op in model.ops:
        ours = {name for v in op.operands if (name := value_name(v)) in floats and name not in theirs}
        for v in op.results if ours else ():
            if uniform_of(v) is not None or not ours.isdisjoint(found):
                found.add(value_name(v))
    return found


def stored(model: Model, reference: Tensors) -> dict[str, np.ndarray]:
    """Tensors of real numbers as the module stores them; one with another number of elements stays as it is.

    Results of 16-bit floats stay f32: TPU-MLIR's interpreter does not round them before the next op.
    """
    found = {name: np.asarray(array) for name, array in reference.items()}
    for v in _values(model):
        array = found.get(name := value_name(v))
        if array is not None and array.size == prod(shape_of(v)):
            if (uniform := uniform_of(v)) is not None:
                array = np.rint(array / uniform.scale.data) + uniform.zero_point.value.data
            element = storage_dtype(element_of(v))
            wide = array.dtype == np.float32 and element.name in ("float16", "bfloat16")
            found[name] = (array if wide else array.astype(element)).reshape(shape_of(v))
    return found


def _unequal(mine: np.ndarray, other: np.ndarray) -> str:
    """How many integers differ, and the first one."""
    different = np.flatnonzero(mine != other)
    if not different.size:
        return ""
    i = int(different[0])
    return f"{different.size} of {mine.size} values differ, the first is {other[i]:.0f} and should be {mine[i]:.0f}"


def _against_lowering(folder: Folder, path: Path, model: Model) -> Step:
    """The scales, attributes and constants of every op that lowering the module of the step before makes too."""
    against = f"{folder.top.name} and the calibration table, lowered here"
    try:
        config = lowered_as(model)
        calibrated = config.format.calibrated
        model.require_state(State.LOWERED, stage="lower")
    except TpusimError as error:
        return Step(path.name, against, unchecked=str(error))
    ctx, passes = PassContext(), pipelines.lowered(config)[:-1]
    if calibrated:
        if len(folder.tables) != 1:
            got = ", ".join(table.name for table in folder.tables) or "none"
            return Step(path.name, against, unchecked=f"one calibration table, *cali_table, is required, got {got}")
        passes = (*pipelines.calibrated(asymmetric=config.asymmetric)[-1:], *passes)
        try:
            ctx = PassContext(table=read_table(folder.tables[0]))
        except TpusimError as error:
            return Step(path.name, against, str(error))
    try:
        top = load_model(folder.top, context())
        if problem := _other_statement(top, model):
            return Step(path.name, folder.top.name, problem)
        mine = PassManager(passes).run(top, ctx)
    except CalibrationError as error:
        return Step(path.name, against, str(error))
    except TpusimError as error:
        return Step(path.name, against, unchecked=str(error))
    problem = first_other_op(mine, model)
    if problem is None:
        return Step(path.name, against, unchecked="no op of one side has kind and name of one of the other side")
    return Step(path.name, against, problem)


def _other_statement(before: Model, after: Model) -> str:
    """The first attribute of a module that the module made of it states otherwise."""
    ours, theirs = before.module.attributes, after.module.attributes
    for name in sorted(ours.keys() & theirs.keys() - {"module.state", "module.weight_file"}):
        wanted, got = plain(ours[name]), plain(theirs[name])
        if got != wanted and wanted != ANY_CHIP:
            return f"its {name.removeprefix('module.')} is {got!r} and should be {wanted!r}"
    return ""


def _other_names(model: Model) -> str:
    """Which names of inputs or results a module states that are not those of its tensors."""
    for name, wanted in (
        ("module.inputs", list(input_specs(model))),
        ("module.outputs", _results(model)),
    ):
        stated = model.module.attributes.get(name)
        if stated is not None and plain(stated) != wanted:
            return f"its {name.removeprefix('module.')} are {_shown(stated)} and should be {', '.join(wanted)}"
    return ""


def first_other_op(mine: Model, theirs: Model) -> str | None:
    """The first op of both modules with another scale, attribute or constant; "" if there is none, None without ops."""
    known = {(op.name, op_name(op)): op for op in mine.ops if op_name(op) and not isinstance(op, TopWeight)}
    pairs = [(same, op) for op in theirs.ops if (same := known.get((op.name, op_name(op)))) is not None]
    for same, op in pairs:
        if why := _other_op(same, mine, op, theirs):
            return f"{op.name} '{op_name(op)}': {why}"
    return "" if any(not isinstance(op, TopInput) for _, op in pairs) else None


def _other_op(mine: Operation, model: Model, theirs: Operation, their_model: Model) -> str:
    scales = [[u.scale.data for v in op.results if (u := uniform_of(v)) is not None] for op in (mine, theirs)]
    if any(scales) and not all(scales):
        return f"its result is {'quantised' if scales[1] else 'not quantised'} and should {'not ' * bool(scales[1])}be"
    for a, b in zip(*scales, strict=False):
        if not np.isclose(a, b, rtol=1e-6):
            return f"its scale is {b:.8g} and should be {a:.8g}"
    for name in sorted({*mine.attributes, *theirs.attributes}):
        a, b = mine.attributes.get(name), theirs.attributes.get(name)
        if (a is None or b is None or plain(a) != plain(b)) and not _unstated(mine.name, name, a, b):
            return f"{name} is {_shown(b)} and should be {_shown(a)}"
    for number, (a, b) in enumerate(zip(mine.operands, theirs.operands, strict=False)):
        if isinstance(a.owner, TopWeight) and isinstance(b.owner, TopWeight):
            x = model.weights[op_name(a.owner)].ravel()
            y = their_model.weights[op_name(b.owner)].ravel()
            if why := _other_constant(x, y):
                return f"weight '{op_name(b.owner)}' (operand {number}): {why}"
    return ""


def _unstated(op: str, name: str, mine: Attribute | None, theirs: Attribute | None) -> bool:
    """Whether only one side states an attribute, and TPU-MLIR's op has no other default for it."""
    stated = [value for value in (mine, theirs) if value is not None]
    found = known.attributes.get(name) if (known := entry(op)) else None
    return len(stated) == 1 and (found is None or found.default is None or found.changes_nothing(stated[0]))


def _other_constant(mine: np.ndarray, theirs: np.ndarray) -> str:
    """How a constant differs: its kind of number, its size, or its values."""
    if (mine.dtype.kind in "iu") != (theirs.dtype.kind in "iu"):
        return f"it is of {theirs.dtype} and should be of {mine.dtype}"
    if mine.size != theirs.size:
        return f"it has {theirs.size} values and should have {mine.size}"
    x, y = mine.astype(np.float64), theirs.astype(np.float64)
    return _unequal(x, y) if mine.dtype.kind in "iu" else far_apart(y, x, 0.0)


def _shown(attribute: Attribute | None) -> str:
    """A value in words; of a list its first elements."""
    value = None if attribute is None else plain(attribute)
    if isinstance(value, list):
        return ", ".join(map(str, value[:SHOWN])) + " ..." * (len(value) > SHOWN)
    return "not stated" if value is None else str(value)

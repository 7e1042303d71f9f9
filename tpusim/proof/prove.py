"""Join both sides: the module op by op, and the program on the machine, over the same elements."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from math import ceil, log2, prod
from typing import Any

from xdsl.ir import Operation

from tpusim.errors import ConfigError
from tpusim.field import PRIME, SETS, Elements, Field
from tpusim.ir.attrs import op_name, value_name
from tpusim.ir.module import Model
from tpusim.isa.stream import Program
from tpusim.ops.framework.base import TpuOp
from tpusim.ops.structure import TpuGroup
from tpusim.proof.declared import differences
from tpusim.proof.explain import Evidence, explained
from tpusim.proof.flat import FlatElements, FlatProof
from tpusim.simulator import Checker, Simulator
from tpusim.simulator.checked import Mismatch, WrongResult
from tpusim.simulator.field import FieldMachine, NotJudged
from tpusim.simulator.run import BLAS, execute

WANTED = 40
"""The chance that two different expressions agree everywhere is below 2**-WANTED."""
_DEGREE = 4
"""The most that an op adds to the degree of an expression: a product, and functions one after the other."""


@dataclass(frozen=True)
class Proof:
    """What was shown.

    wrong: the first result that is another expression; None: the program computes its module. why: what the
    program has in its place. compared: slices, stores and tensors of one seed. bits: different expressions agree with a
    chance of at most 2**-bits. stated: ops judged by their own meaning; uncut: name -> class of those judged by their
    commands on whole tensors. unjudged: op -> why it is not; unseen: tensors that depend on these.
    """

    compared: int
    seeds: int
    bits: float
    stated: tuple[str, ...]
    uncut: Mapping[str, str]
    unjudged: Mapping[str, str]
    unseen: tuple[str, ...] = ()
    wrong: Mismatch | None = None
    why: str = ""

    declared: tuple[str, ...] = ()
    """What the program declares otherwise than its module: tables, regions, work areas, transfers (`declared`)."""
    hashed: bool = False
    """Whether sums over windows were hashes; False: there are none, or they had to be the field's sums of products."""
    prime: int = PRIME

    @property
    def passed(self) -> bool:
        """Whether nothing wrong was found."""
        return self.wrong is None and not self.declared

    def to_json(self) -> dict[str, Any]:
        """The fields, with the wrong result in words."""
        wrong = None if self.wrong is None else self.wrong.headline
        return {
            **{field.name: getattr(self, field.name) for field in fields(self)},
            "passed": self.passed,
            "wrong": wrong,
        }


def prove(model: Model, machine: Simulator, *, wanted: float = WANTED, explain: bool = True) -> Proof:
    """Compare a checked program with its addressed module over the field until the chance is below 2**-wanted.

    explain: say in words what stands in the place of the first wrong element; it takes two more seeds.
    """
    return Prover(model).prove(machine, wanted=wanted, explain=explain)


class Prover:
    """Proves programs of one module. The module's side is computed once for every seed, the program's for each."""

    def __init__(self, model: Model) -> None:
        model.require_state("TPU_ADDRESSED", stage="prove")
        self._model = model
        self._flat: dict[tuple[int, bool], tuple[FlatElements, bool]] = {}

    def prove(self, machine: Simulator, *, wanted: float = WANTED, explain: bool = True) -> Proof:
        """As `prove` of a module."""
        bits = log2(SETS / (_DEGREE * longest_path(self._model)))
        seeds = max(1, ceil(wanted / bits))
        with BLAS.limit(limits=machine.options.blas_threads, user_api="blas"):
            found = self._over_seeds(machine, seeds, explain=explain, algebra=False)
            if found.wrong is not None and found.hashed:
                found = self._over_seeds(machine, seeds, explain=explain, algebra=True)
        declared = () if found.wrong else differences(self._model, machine.program)
        return replace(found, bits=bits * found.seeds, declared=declared)

    def _over_seeds(self, machine: Simulator, seeds: int, *, explain: bool, algebra: bool) -> Proof:
        """The proof of all seeds, or of the first one with a wrong result."""
        for seed in range(seeds):
            found, evidence = self._once(machine, Field(seed, algebra=algebra))
            if found.wrong is not None and explain:
                others = range(seeds, seeds + 2)
                more = [self._once(machine, Field(other, algebra=algebra))[1] for other in others]
                return replace(found, why=explained(found.wrong, [evidence, *more], machine.program))
            if found.wrong is not None or seed == seeds - 1:
                return found
        raise AssertionError("one seed at least")

    def _flat_side(self, field: Field) -> FlatElements:
        key = field.seed, field.algebra
        if key not in self._flat:
            self._flat[key] = FlatProof(self._model, field).run(), field.hashed
        found, field.hashed = self._flat[key]
        return found

    def _once(self, machine: Simulator, field: Field) -> tuple[Proof, Evidence]:
        """Both sides for one seed, until the first wrong result."""
        program, flat = machine.program, self._flat_side(field)
        memory = field_machine(machine, field)
        cores = memory.of_cores(machine.lane_bytes)
        _require_inputs(flat.inputs, program)
        for entry in program.inputs:
            memory.write(entry.view, flat.inputs[entry.name].reshape(entry.view.shape))
        checker = Checker(program, machine.chip, flat.tensors, expected=field_machine(machine, field))
        wrong, unjudged = None, dict(flat.unjudged)
        for index in machine.order:
            command = program.commands[index]
            try:
                execute(command, cores[command.core])
            except NotJudged as why:
                unjudged[command.op] = str(why)
                for name in dependents(self._model, command.op):
                    checker.forget(name)
            try:
                checker.after(index, cores[command.core])
            except WrongResult as error:
                wrong = error.mismatch
                memory = cores[command.core]
                break
        proof = Proof(
            compared=checker.checked, seeds=field.seed + 1, bits=0.0, hashed=field.hashed, stated=tuple(flat.stated),
            uncut=flat.uncut, unjudged=unjudged, unseen=checker.unknown, wrong=wrong,
        )  # fmt: skip
        return proof, Evidence(flat.tensors, memory, wrong)


def longest_path(model: Model) -> int:
    """Ops on the longest path from an input to a result."""
    depth: dict[Operation, int] = {}
    for op in _ops(model):
        below = (depth.get(value.owner, 0) for value in op.operands if isinstance(value.owner, Operation))
        depth[op] = max(below, default=0) + isinstance(op, TpuOp)
    return max(depth.values(), default=1) or 1


def _ops(model: Model) -> list[Operation]:
    return [inner for op in model.ops for inner in ((*op.body.block.ops, op) if isinstance(op, TpuGroup) else (op,))]


def _require_inputs(inputs: Mapping[str, Elements], program: Program) -> None:
    """Raise ConfigError for a module with other inputs than the program."""
    wanted = {entry.name: entry.view.shape for entry in program.inputs}
    got = {name: elements.shape for name, elements in inputs.items()}
    if {name: prod(shape) for name, shape in wanted.items()} != {name: prod(shape) for name, shape in got.items()}:
        raise ConfigError(
            f"prove: a module with the program's inputs {_shapes(wanted)} is required, got {_shapes(got)}; "
            "give the module from which the program was generated"
        )


def _shapes(inputs: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"'{name}' {shape}" for name, shape in inputs.items()) or "none"


def field_machine(machine: Simulator, field: Field) -> FieldMachine:
    """Memories for a machine's program with elements in place of bytes."""
    program, memory = machine.program, machine.memories[0]
    return FieldMachine(machine.chip, memory.regions, program.coefficients, memory.lane_bytes, field=field)


def dependents(model: Model, name: str) -> set[str]:
    """The tensors of an op and all that depend on them."""
    reached: set[Operation] = set()
    for op in _ops(model):
        owners = {value.owner for value in op.operands}
        if op_name(op) == name or owners & reached:
            reached.add(op)
    return {value_name(value) for op in reached if isinstance(op, TpuOp) for value in op.results}

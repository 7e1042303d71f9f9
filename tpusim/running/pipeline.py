"""The pipeline: STAGES is the table of contents, `run` takes a model from the first stage to the last wanted one.

Every stage is a function from the artefacts so far to the next. It computes; `persistence` says which results are
written, and `store` keeps them on disk as soon as they exist, so that a person can stop, look, edit and go on. No stage
changes an earlier artefact. Modules are verified between stages. A background thread writes files, does flat inference
and makes the page's pictures during later stages; none of it changes an artefact.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from itertools import chain
from math import prod
from pathlib import Path
from typing import Any

from tpusim.calibration.samples import Samples, load_samples, origin_of, require_finite
from tpusim.calibration.smooth import measured_rewrites
from tpusim.calibration.stage import require_names
from tpusim.calibration.table import read_table
from tpusim.chips import load as load_chip
from tpusim.chips import require_cores
from tpusim.errors import ConfigError, meant, option
from tpusim.fidelity import card_of
from tpusim.frontend import read_model
from tpusim.host.files import real
from tpusim.host.heap import give_back
from tpusim.host.threads import background_thread
from tpusim.images import images_of
from tpusim.inference import input_specs
from tpusim.ir.attrs import value_name
from tpusim.ir.content import is_module
from tpusim.ir.module import Model
from tpusim.ir.types import shape_of
from tpusim.isa.stream import Program
from tpusim.layer_group import lower_bounds, products
from tpusim.lowering import config_for_chip
from tpusim.lowering.qtable import read_qtable
from tpusim.memory import require_mode
from tpusim.ops.framework.base import ShapedOp
from tpusim.passes import Pass, PassContext, PassManager, Pipeline
from tpusim.passes.codegen import Codegen
from tpusim.passes.instruments import Instrument
from tpusim.passes.pipelines import calibrated, canonical, commands, grouped, imported, lowered
from tpusim.running.accuracy import batch_of, evaluate, labels_of, require_labels
from tpusim.running.agreement import compare_local
from tpusim.running.artefacts import Artefacts, Observer, RunConfig, Silent, Tensors, need
from tpusim.running.asked import record_of, stated
from tpusim.running.levels import compared_levels, float_levels, sample_for_chip, samples_of, tpu_level
from tpusim.running.persistence import ARTEFACTS, FILES, PROGRAM, is_calibrated, load_module, shown_early, stage_keys
from tpusim.running.store import UNFINISHED, Store
from tpusim.simulator import Simulator, Timeline, roofline
from tpusim.studies.prospect.refusals import names_nothing, require_lowerable
from tpusim.verify.kept import Keep
from tpusim.verify.report import Report, build_report
from tpusim.version import __version__

__all__ = ["ARTEFACTS", "STAGES", "Artefacts", "Observer", "RunConfig", "Silent", "compare_local", "run"]

# -------------------------------------------------------------------------------------------------------------- stages


def stage_import(a: Artefacts) -> None:
    """Stage `import`: the model's file becomes a top module, with its preprocessing recorded; a module is read."""
    if is_module(a.config.model):
        a.top = load_module(a.config.model)
        a.top.require_state("TOP_F32", stage="run")
        return
    a.top = read_model(a.config.model, input_shapes=a.config.input_shapes, cut=a.config.cut)
    if steps := pipeline_of("import", a.config):
        a.top = _passed(a, steps, a.top)


def _passed(a: Artefacts, steps: Sequence[Pass], model: Model, ctx: PassContext | None = None) -> Model:
    """What passes make of a copy of the module, under the instruments of the run."""
    return PassManager(steps, a.instruments).run(model, ctx)


def stage_canonicalize(a: Artefacts) -> None:
    """Top patterns and fusions; then rewrites on request whose factors are measured on samples."""
    ctx = PassContext(samples=a.given)
    a.canonical = _passed(a, pipeline_of("canonicalize", a.config), need(a.top, "the top module"), ctx)
    a.patterns = dict(sorted(ctx.patterns.items()))


def stage_calibrate(a: Artefacts) -> None:
    """Thresholds, unless they are given, and calibrated types on the module; in f32 mode only the sample is read."""
    model = need(a.canonical, "the canonical module")
    samples = samples_of(a, model)
    if not a.sample:
        a.sample, samples = _peeked(samples)
    if not is_calibrated(a.config):
        a.calibrated = model
        return
    ctx = PassContext(table=a.table, samples=samples, workers=a.config.workers, progress=a.observer.progress)
    steps = pipeline_of("calibrate", a.config)
    if a.table is not None and a.config.table is None:
        steps = steps[-1:]
    elif a.config.table is None:
        ctx.calibration_state = _calibration_state(a)
    a.calibrated = _passed(a, steps, model, ctx)
    if ctx.calibration_state is not None:
        ctx.calibration_state.unlink(missing_ok=True)
    a.table, a.measured = ctx.table, ctx.measured


def _peeked(samples: Iterable[Tensors]) -> tuple[Tensors, Iterable[Tensors]]:
    """The first of the samples, and all of them: a generator is read once."""
    rows = iter(samples)
    first = next(rows, Tensors())
    return first, chain([first], rows) if rows is samples else samples


def _calibration_state(a: Artefacts) -> Path | None:
    """The file of a calibration's state, from which --resume continues; None: no state is kept."""
    if a.config.workers is not None or not a.keys:  # without keys nothing is kept in the folder of a run
        return None
    state = a.config.out / UNFINISHED / f"calibration-{a.keys['calibrate'][:16]}.npz"
    for left in state.parent.glob(f"calibration-{'[0-9a-f]' * 16}.npz"):  # of runs that did not finish either
        if left != state or not a.config.resume:
            left.unlink()
    return state


def stage_lower(a: Artefacts) -> None:
    """Top -> tpu for a chip and mode, as the chip's compiler hands it to the layer groups."""
    ctx = PassContext()
    a.tpu = _passed(a, pipeline_of("lower", a.config), need(a.calibrated, "the calibrated module"), ctx)
    a.fallbacks = ctx.fallbacks


def stage_group(a: Artefacts) -> None:
    """Weights into chip layout, then layer groups."""
    a.grouped = _passed(a, pipeline_of("group", a.config), need(a.tpu, "the tpu module"))


def stage_assign(a: Artefacts) -> None:
    """Give every tensor an address in global memory."""
    a.final = _passed(a, pipeline_of("assign", a.config), need(a.grouped, "the grouped module"))


def stage_codegen(a: Artefacts) -> None:
    """TIU and GDMA commands of the addressed module."""
    ctx = PassContext()
    _passed(a, pipeline_of("codegen", a.config), need(a.final, "the addressed module"), ctx)
    a.program = ctx.program


COMPILES: dict[str, Callable[[RunConfig], Sequence[Pass]]] = {
    "import": lambda c: () if is_module(c.model) else imported(c.preprocess, c.preprocess_list),
    "canonicalize": lambda c: canonical(c.also, c.data, c.calibration.max_samples, c.lowering.quirks_off),
    "calibrate": lambda c: (
        calibrated(c.table, c.calibration, c.data, asymmetric=c.lowering.asymmetric) if is_calibrated(c) else ()
    ),
    "lower": lambda c: lowered(c.lowering),
    "group": lambda c: grouped(c.layer_group),
    "assign": lambda c: commands(addr_mode=c.addr_mode)[:1],
    "codegen": lambda c: commands()[1:],
}
"""The passes of each stage that rewrites a module, by what a run is asked for."""


def pipeline_of(stage: str, config: RunConfig) -> Sequence[Pass]:
    """The passes of a stage."""
    return COMPILES[stage](config)


def compiling(config: RunConfig) -> list[Pass]:
    """The passes of a run, from its first to its last stage."""
    order = list(STAGES)
    first, last = order.index(config.start or order[0]), order.index(config.to)
    return [step for stage in order[first : last + 1] if stage in COMPILES for step in pipeline_of(stage, config)]


def module_before(config: RunConfig) -> Path:
    """The file that the passes of a run begin with: the model, or the module of the stages before its first."""
    before = list(STAGES)[: list(STAGES).index(config.start or "import")]
    modules = [name for stage in before for name in FILES[stage].names if name.endswith(".mlir")]
    return config.out / modules[-1] if modules else config.model


def whole_pipeline(config: RunConfig) -> Pipeline:
    """The passes of a run as a pipeline; `tpusim opt` writes the program where the run would."""
    program = str(config.out / PROGRAM)
    steps = compiling(config)
    return Pipeline(tuple(replace(step, model_file=program) if isinstance(step, Codegen) else step for step in steps))


def stage_infer(a: Artefacts) -> None:
    """Flat inference: the original model in its framework, the top and the tpu module in JAX."""
    for name, infer in IN_BACKGROUND.items():
        a.tensors.update(a.background[name].result() if name in a.background else infer(a))


IN_BACKGROUND: dict[str, Callable[[Artefacts], dict[str, Tensors]]] = {"lower": float_levels, "group": tpu_level}
"""Flat inference by the stage with which it can begin, because all that it reads exists then."""


def stage_simulate(a: Artefacts) -> None:
    """The local-memory machine; then, with labels, the whole labelled data on every level."""
    program = need(a.program, "the program")
    a.machine = Simulator(program, options=a.config.simulator)
    result = a.machine.run(sample_for_chip(a, a.sample), watch=True)
    a.tensors["local"] = result.tensors
    if a.config.labels is not None:
        a.accuracy = evaluate(a, a.config.labels)


def stage_verify(a: Artefacts) -> None:
    """The flat levels over samples, the machine on the first one, and the report."""
    tpu = need(a.tpu, "the tpu module")
    flat = {level: tensors for level, tensors in a.tensors.items() if level != "local"}
    a.comparisons |= a.compared.result() if a.compared is not None else compared_levels(a, flat)
    mixed = a.config.lowering.qtable is not None
    a.comparisons["local_vs_tpu"] = compare_local(
        tpu, sample_for_chip(a, a.sample), a.tensors["local"], a.tensors["tpu"], with_qtable=mixed
    )


STAGES: dict[str, Callable[[Artefacts], None]] = {
    "import": stage_import,
    "canonicalize": stage_canonicalize,
    "calibrate": stage_calibrate,
    "lower": stage_lower,
    "group": stage_group,
    "assign": stage_assign,
    "codegen": stage_codegen,
    "infer": stage_infer,
    "simulate": stage_simulate,
    "verify": stage_verify,
}
"""The stages by name, in processing order."""


def run(
    config: RunConfig, observer: Observer | None = None, *, command: str = "", instruments: Iterable[Instrument] = ()
) -> Artefacts:
    """Run the stages up to `config.to`. command: the command line, for the report. instruments: watch the passes.

    Raises TpusimError, with a note about the place of the artefacts of finished stages; those of an earlier run in the
    folder stay until this run is done. All files that the run reads are examined before anything is written.
    """
    config = checked(config)
    a = Artefacts(config, observer or Silent(), tuple(instruments), from_file=not is_module(config.model))
    wanted = list(STAGES)[: list(STAGES).index(config.to) + 1]
    writing = wanted[wanted.index(config.start) :] if config.start is not None else wanted
    names = tuple(dict.fromkeys(name for stage in writing for name in FILES[stage].names))
    with Store(config.out, names, __version__, ARTEFACTS) as store, background_thread() as other:
        keys, record = other.submit(stage_keys, config), other.submit(record_of, config, command)
        source, reused = _reused(store, config, lambda: {name: keys.result()[name] for name in wanted})
        if not reused:
            _compute(a, "import")
        a.keys = keys.result()
        for name in reused:
            FILES[name].read(a, source)
        check_samples(a)
        for name in reused:
            _check(a, name)
        if "canonicalize" in wanted and a.canonical is None and not measured_rewrites(config.also):
            _compute(a, "canonicalize")
        made = [name for name, _ in a.stages]
        store.begin(stated(config), source, reused)
        a.stages[:0] = [(name, store.seconds(name)) for name in reused]
        for name in wanted[len(reused) :]:
            _begin_in_background(a, name, wanted, other)
            if name == "verify":
                a.record = record.result()
            if name not in made:
                _compute(a, name)
            files, seconds = FILES[name], dict(a.stages)[name]
            files.prepare(a)
            store.keep(name, a.keys[name], seconds, files.names, lambda folder, files=files: files.write(a, folder))
        store.publish(_reads(config))
    return a


def _begin_in_background(a: Artefacts, name: str, wanted: Sequence[str], other: Executor) -> None:
    """Submit the work that changes no artefact and can run during this stage and later ones."""
    if name in IN_BACKGROUND and "infer" in wanted:
        a.background[name] = other.submit(IN_BACKGROUND[name], a)
    if name == "group" and "verify" in wanted and "lower" in a.background:
        a.compared = other.submit(lambda: compared_levels(a, _begun(a)))
    if name == "simulate" and "verify" in wanted:
        a.shown = other.submit(shown_early, a)


def _begun(a: Artefacts) -> dict[str, Tensors]:
    """The flat levels of the first sample, made during earlier stages."""
    return {level: tensors for name in IN_BACKGROUND for level, tensors in a.background[name].result().items()}


def write_run(a: Artefacts, folder: Path) -> Path:
    """Write a network that was compiled in memory as the folder of a run, with a manifest; return the folder.

    No run continues from it, because the samples in memory are not on disk. Instead its options name the table and the
    first sample in the folder, so that a run of it has the same integers. Raises ConfigError if the folder has files
    that no run wrote.
    """
    made = {"import": a.top, "canonicalize": a.canonical, "calibrate": a.calibrated, "lower": a.tpu, "group": a.grouped,
            "assign": a.final, "codegen": a.program}  # fmt: skip
    names = tuple(dict.fromkeys(name for stage in made for name in FILES[stage].names))
    seconds = dict(a.stages)
    with Store(folder, names, __version__, ARTEFACTS) as store:
        store.begin(stated(_on_disk(a, real(folder))), folder, [])
        for stage, artefact in made.items():
            if artefact is not None:
                files = FILES[stage]
                files.prepare(a)
                store.keep(stage, "in memory", seconds.get(stage, 0.0), files.names, partial(files.write, a))
                store.settle()
        store.publish(lambda path: False)
    return folder


def _on_disk(a: Artefacts, folder: Path) -> RunConfig:
    """The configuration with files in place of samples and a table that were in memory."""
    if isinstance(a.given, Samples):
        return replace(a.config, data=str(a.given.source))
    if a.given is None and a.config.data != RunConfig.data:
        return a.config
    table = a.config.table or (folder / "cali_table" if a.table is not None else None)
    return replace(a.config, data=str(folder / "inputs.npz"), table=table)


def _compute(a: Artefacts, name: str) -> None:
    """Run one stage, time it, and examine its results; the report comes with the last one."""
    begin = time.perf_counter()
    with a.observer.stage(name):
        STAGES[name](a)
        give_back()
    a.stages.append((name, time.perf_counter() - begin))
    _check(a, name)
    if name == "verify":
        a.report = make_report(a)


def _check(a: Artefacts, name: str) -> None:
    """Refuse what the artefacts of this stage show to be impossible later."""
    if name == "canonicalize":
        check_foreseen(a)
    if name == "lower":
        check_kept(a)


def _reused(store: Store, config: RunConfig, keys: Callable[[], Mapping[str, str]]) -> tuple[Path, list[str]]:
    """(folder, stages) whose artefacts are read instead of made. Raises ConfigError if `config.start` needs others."""
    if config.start is None and not config.resume:
        return config.out, []
    unread = ("verify",) if config.keep.everything else ("infer", "simulate", "verify")
    before = {name: key for name, key in keys().items() if name not in unread}
    if config.start is not None:
        names = list(STAGES)[: list(STAGES).index(config.start)]
        source, found = store.completed({n: before[n] for n in names}, edited=True)
        if found != names:
            missing = names[len(found)]
            raise ConfigError(
                f"{option('start', config.start)}: '{missing}' must be complete in {config.out} with the same "
                "options and "
                f"inputs, and is not; give {option('start', missing)}, or {option('resume', True)}"
            )
        return source, found
    return store.completed(before)


def checked(config: RunConfig) -> RunConfig:
    """The configuration with what the chip makes of it; everything that can be examined without the model is.

    Raises a TpusimError of the option or file that will not do.
    """
    for name, stage in (("to", config.to), ("start", config.start)):
        if stage is not None and stage not in STAGES:
            raise ConfigError(f"{option(name, stage)}: expected one of {', '.join(STAGES)}{meant(stage, STAGES)}")
    order = list(STAGES)
    if config.start is not None and order.index(config.start) > order.index(config.to):
        raise ConfigError(f"{option('start', config.start)}: a stage up to {option('to', config.to)} is required")
    if not config.keep.everything and order.index(config.to) < order.index("infer"):
        raise ConfigError(
            f"{option('keep', ' '.join(config.keep.asked))}: needs {option('to', 'infer')} or a later stage, "
            f"which make tensors; got {option('to', config.to)}"
        )
    if not config.keep.everything and config.start in ("simulate", "verify"):
        raise ConfigError(
            f"{option('start', config.start)}: reads the tensors of the stages before, which {config.keep} "
            "does not write; "
            f"give {option('start', 'infer')}, or leave {option('keep')} out"
        )
    chip = load_chip(config.lowering.chip)  # its figures, not its file's name, decide what a stage makes
    config = replace(config, lowering=config_for_chip(replace(config.lowering, chip=chip)))
    require_cores(chip, config.layer_group.cores)
    require_mode(config.addr_mode)
    if config.table is not None:
        read_table(config.table)  # a table that cannot be read is refused in float modes too
    if config.lowering.qtable is not None:
        read_qtable(config.lowering.qtable, config.lowering.format)
    for step in compiling(config):
        step.check_options(PassContext())
    return config


def check_samples(a: Artefacts) -> None:
    """Read the samples and the labels of a model once, before anything is computed with them.

    Raises CalibrationError or ConfigError that names the file.
    """
    config, top = a.config, need(a.top, "the top module")
    specs, images = input_specs(top), images_of(top)
    reaches = list(STAGES).index(config.to)
    if reaches >= list(STAGES).index("calibrate"):
        samples = load_samples(config.data, specs, config.calibration.max_samples, images=images)
        measures = is_calibrated(config) and config.table is None
        if measures:
            require_names(top)
        if not measures:
            next(samples)
        elif not config.data.startswith("random:"):
            for number, sample in enumerate(samples, 1):
                require_finite(sample, origin_of(sample, number))
    if config.labels is not None:
        wanted = labels_of(config.labels, classes=prod(shape_of(top.results[0])[1:]))
        if reaches >= list(STAGES).index("simulate"):
            tested = load_samples(config.test_data or config.data, specs, images=images)
            count = sum(batch_of(sample) for sample in tested)
            require_labels(config.labels, len(wanted), count)


def check_foreseen(a: Artefacts) -> None:
    """Before samples are measured, refuse what later stages would refuse for any ranges.

    Raises ConfigError or UnsupportedError.
    """
    config, reaches = a.config, list(STAGES).index(a.config.to)
    measures = is_calibrated(config) and config.table is None and a.table is None and a.calibrated is None
    if not measures or reaches < list(STAGES).index("lower"):
        return
    forced = config.layer_group.force if reaches >= list(STAGES).index("group") else ()
    names = require_lowerable(need(a.canonical, "the canonical module"), config.lowering, forced)
    if unknown := tuple(word for word in config.keep.patterns if names_nothing(word, names)):
        Keep(unknown).require_tensors(names)


def check_kept(a: Artefacts) -> None:
    """Raise ConfigError for a name of `--keep` that no tensor of the network has."""
    modules = need(a.canonical, "the canonical module"), need(a.tpu, "the tpu module")
    computed = [op for module in modules for op in module.ops if isinstance(op, ShapedOp)]
    a.config.keep.require_tensors(value_name(value) for op in computed for value in op.results)


def _reads(config: RunConfig) -> Callable[[Path], bool]:
    """Whether the run read a file: it stays, even if it is an earlier run's."""
    given = (config.model, config.table, config.labels, config.data, config.test_data, config.lowering.qtable)
    read = {os.path.realpath(path) for path in given if path is not None}
    samples_here = os.path.realpath(config.out) in read
    return lambda path: os.path.realpath(path) in read or (samples_here and path.suffix == ".npz")


# -------------------------------------------------------------------------------------------------------------- report


def make_report(a: Artefacts) -> Report:
    """The report of a finished run."""
    program, machine = need(a.program, "the program"), need(a.machine, "the machine")
    timeline, calibration = machine.timeline, machine.chip.calibration
    final, said = need(a.final, "the addressed module"), machine.summary
    bounds = lower_bounds(final)
    return build_report(
        version=__version__,
        model=program.header.model,
        chip=program.header.chip,
        mode=program.header.mode,
        asymmetric=a.config.lowering.asymmetric,
        stages=a.stages,
        compare=a.comparisons,
        groups=group_figures(program, machine),
        memory={"coeff_bytes": program.header.coeff_bytes, "neuron_bytes": program.header.neuron_bytes},
        totals={
            "commands": len(program.commands),
            "load_bytes": timeline.load_bytes,
            "store_bytes": timeline.store_bytes,
            "cycles": timeline.cycles,
            "milliseconds": timeline.milliseconds * calibration.factor,
            "clock_milliseconds": timeline.milliseconds,
            "time_factor": calibration.factor,
            "time_residual": calibration.residual,
            "macs": program.header.macs,
            "compulsory_bytes": bounds.compulsory_bytes,
            "mac_cycles": bounds.mac_cycles,
            "traffic_ratio": bounds.traffic_ratio(timeline.load_bytes + timeline.store_bytes),
            "cycle_ratio": bounds.cycle_ratio(timeline.cycles),
        },
        accuracy=None if a.accuracy is None else {**a.accuracy, "max_drop": a.config.max_drop},
        fidelity=card_of(need(a.tpu, "the tpu module")).to_json(),
        engines=said.to_json(),
        cores=core_figures(program, timeline),
        run=None if a.record is None else replace(a.record, measured=a.measured),
        warnings=() if a.table is None else a.table.notes,
        roofline=roofline(program, timeline, said, machine.chip, *products(final)).to_json(),
    )


def group_figures(program: Program, machine: Simulator) -> Iterator[dict[str, Any]]:
    """Per group: its ops and sections, its bytes and cycles, and its bound."""
    for entry in program.groups:
        cost = machine.timeline.groups[entry.id]
        yield {
            "id": entry.id,
            "ops": list(entry.ops),
            "secs": entry.secs,
            "lmem_peak_bytes": entry.lmem_peak_bytes,
            "lmem_bytes": machine.chip.lmem_bytes,
            "load_bytes": cost.load_bytes,
            "store_bytes": cost.store_bytes,
            "cycles": cost.cycles,
            "reason": entry.reason,
            **vars(machine.summary.groups[entry.id]),
        }


def core_figures(program: Program, timeline: Timeline) -> list[dict[str, Any]]:
    """Per core: commands, bytes moved, busy share of each engine."""
    found: list[dict[str, Any]] = []
    for core, busy in timeline.core_busy.items():
        own = [command for command in program.commands if command.core == core]
        moved = [command.traffic() for command in own]
        found.append(
            {
                "core": core,
                "commands": len(own),
                "load_bytes": sum(load for load, _ in moved),
                "store_bytes": sum(store for _, store in moved),
                "tiu_busy": busy["tiu"],
                "gdma_busy": busy["gdma"],
            }
        )
    return found

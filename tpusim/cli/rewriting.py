"""`--verify-passes`: the check of patterns and passes in `canonicalize` and `run`."""

from tpusim.artefacts import Artefacts, need
from tpusim.calibration.samples import Samples
from tpusim.canonicalize import canonicalize
from tpusim.cli.output import Output
from tpusim.diagnosis import PassCheck
from tpusim.images import images_of
from tpusim.inference import input_specs
from tpusim.ir.module import Model
from tpusim.lowering import lower


def check_of(model: Model, data: str) -> PassCheck:
    """A check of a module with the first sample of the data."""
    return PassCheck(model, dict(next(iter(Samples(data, input_specs(model), 1, images=images_of(model))))))


def check_run(a: Artefacts) -> PassCheck:
    """Check all rewritings of a run's network, on the run's sample or else a random one.

    The patterns are applied again, one by one. Lowering changes numbers on purpose, so later passes are compared with
    the lowered module.
    """
    top = need(a.top, "the top module")
    check = PassCheck(top, a.sample) if a.sample else check_of(top, "random:1")
    canonicalize(top, a.config.also, check)
    if a.tpu is not None:
        check.restart(lower(need(a.calibrated, "the calibrated module"), a.config.lowering)[0])
    for name, model in (("processor-tpu-optimize", a.tpu), ("layer-group", a.grouped), ("assign", a.final)):
        if model is not None:
            check(name, model)
    return check


def show_check(console: Output, check: PassCheck) -> bool:
    """One line; True if no numbers changed."""
    console.result(checked=check.checked, changed=None if check.first is None else str(check.first))
    if check.first is None:
        console.tell(f"verify-passes: {check.checked} patterns and passes changed no numbers")
        return True
    console.tell(f"verify-passes: {check.first}", "red")
    return False

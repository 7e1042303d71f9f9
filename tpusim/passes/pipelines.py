"""Named pipelines, and the pipelines that the options of stages stand for."""

from collections.abc import Sequence
from pathlib import Path

from tpusim.calibration.smooth import measured_rewrites, patterns_of
from tpusim.calibration.stage import CalibrationConfig
from tpusim.canonicalize import QUIRKS
from tpusim.images import Preprocess
from tpusim.layer_group import LayerGroupConfig
from tpusim.lowering import LoweringConfig
from tpusim.passes.base import Pass, Pipeline
from tpusim.passes.calibration import DATA, Calibrate, ImportCalibrationTable, Smoothquant, SoftmaxCorrection
from tpusim.passes.canonicalize import Canonicalize
from tpusim.passes.codegen import Codegen
from tpusim.passes.host_functions import OutlineHostFunctions
from tpusim.passes.layer_group import LayerGroup
from tpusim.passes.lowering import ConvertTopToTpu, ProcessorTpuOptimize, WeightReorder
from tpusim.passes.memory import AddressAssign
from tpusim.passes.preprocess import FusePreprocess, SetPreprocess

Steps = tuple[Pass, ...]

CALIBRATION, LOWERING, GROUPS = CalibrationConfig(), LoweringConfig(), LayerGroupConfig()
"""The usual options of stages."""
MEASURED = {step.name: step for step in (Smoothquant, SoftmaxCorrection)}
"""The rewrites by samples, in the order in which they are done."""


def imported(preprocess: Preprocess | None, inputs: tuple[int, ...] = ()) -> Steps:
    """What an import adds to the module: how its inputs are made of images."""
    return () if preprocess is None else (SetPreprocess.from_config(preprocess, inputs=inputs),)


def canonical(
    also: Sequence[str] = (), data: str = DATA, max_samples: int = 0, quirks_off: Sequence[str] = ()
) -> Steps:
    """From an imported module to a canonical one. also: rewrites on request, by samples too, which `data` names."""
    here = tuple(quirk for quirk in quirks_off if quirk in QUIRKS)
    function = Pipeline((Canonicalize(patterns_of(also), here),), Canonicalize.anchor)
    return (function, *(MEASURED[name](data, max_samples) for name in MEASURED if name in measured_rewrites(also)))


def calibrated(
    table: Path | None = None, config: CalibrationConfig = CALIBRATION, data: str = DATA, *,
    asymmetric: bool = False,
) -> Steps:  # fmt: skip
    """From a canonical module to one with ranges: those of a table, None: measured on samples."""
    if table is not None:
        return (ImportCalibrationTable(str(table), asymmetric),)
    return (Calibrate.from_config(config, data=data), ImportCalibrationTable(asymmetric=asymmetric))


def converted(config: LoweringConfig = LOWERING) -> Steps:
    """From ranges to a tpu module, before the rewrites for its chip. Raises ConfigError for options without effect."""
    frames = config.frames
    fused = () if frames is None else (FusePreprocess.from_config(frames, chip=config.chip),)
    return (*fused, ConvertTopToTpu.from_config(config))


def lowered(config: LoweringConfig = LOWERING) -> Steps:
    """From ranges to a tpu module, as the layer groups take it."""
    return (*converted(config), ProcessorTpuOptimize())


def integers(config: LoweringConfig = LOWERING) -> Steps:
    """From a canonical module to a tpu module as it is compared with the float network: by the context's table."""
    return (ImportCalibrationTable(asymmetric=config.asymmetric), *converted(config))


def grouped(config: LayerGroupConfig = GROUPS) -> Steps:
    """From a tpu module to layer groups and host functions."""
    return (WeightReorder(), LayerGroup.from_config(config), OutlineHostFunctions())


def commands(model_file: Path | None = None, cores: int = 0, addr_mode: str = "basic") -> Steps:
    """From layer groups to a program."""
    return (AddressAssign(addr_mode), Codegen("" if model_file is None else str(model_file), cores))


LOWER_ONLY = Pipeline(lowered())
"""From ranges to a tpu module, as the layer groups take it."""
_BACK = (*LOWER_ONLY.steps, *grouped(), *commands())
DEPLOY = Pipeline((*canonical(), ImportCalibrationTable(), *_BACK))
"""From an imported module and a calibration table to commands."""
DEPLOY_FLOAT = Pipeline((*canonical(), *_BACK))
"""From an imported module to commands, in a float mode."""

"""Passes: every stage, and every step inside one, as a rewriting of a module with a name and options.

`Pass` is a frozen dataclass: its fields are the options of its text form, of `tpusim opt` and of Python. It says which
states of a module it takes and which it leaves; `PassContext` checks that in one place, runs passes, and carries the
weights and what is no IR (calibration table, samples, program). `Pipeline` is passes in order, nested by op name,
with a text form (`parse_pipeline`, `print_pipeline`); the named ones are in `pipelines`. `PassManager` runs a pipeline
on a copy of a module, watched by `instruments`. The algorithms are in the stages' packages.
"""

from tpusim.passes.base import Codec, Pass, Pipeline
from tpusim.passes.context import PassContext
from tpusim.passes.manager import PassManager
from tpusim.passes.text import parse_pipeline, pass_of, print_pipeline

__all__ = ["Codec", "Pass", "PassContext", "PassManager", "Pipeline", "parse_pipeline", "pass_of", "print_pipeline"]

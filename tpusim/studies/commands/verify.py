"""`tpusim verify`: whether the steps of a folder of TPU-MLIR fit each other."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import tyro

from tpusim.cli.command import Command
from tpusim.cli.output import Output


@dataclass
class VerifyCommand(Command):
    """Check the folder that model_transform.py and model_deploy.py of TPU-MLIR left, each step against the one before.

    The module after import against the imported one, the lowered module against the calibration table and against
    lowering it here, the final module against the lowered one: flat, its commands on the machine, and these for all
    inputs by a proof over a finite field. Files of references (*_outputs.npz) are compared where they are. Names the
    first step that is wrong, with tensor or op; status 1 then.
    """

    says = "`steps`, each with file, what it is against, and the problem or why it is unchecked; both empty if right"

    folder: Annotated[Path, tyro.conf.Positional]
    """The folder."""

    def execute(self, console: Output) -> bool:
        """Print a line for each check; False if a step is wrong."""
        from tpusim.studies.verification.folder import Folder
        from tpusim.studies.verification.steps import Step, steps_of

        steps: list[Step] = []
        for step in steps_of(Folder(self.folder)):
            steps.append(step)
            state = "WRONG" if step.problem else "not checked" if step.unchecked else "ok"
            words = step.problem or step.unchecked
            console.tell(f"{state:<11} {step.file} against {step.against}" + (f": {words}" if words else ""))
        console.result(steps=[asdict(step) for step in steps])
        return not any(step.problem for step in steps)

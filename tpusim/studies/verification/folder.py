"""The files of a folder of TPU-MLIR, by what they are."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tpusim.errors import ConfigError
from tpusim.verify.npz import Tensor, load_tensors

ORIGIN, LOWERED, FINAL = "_origin.mlir", "_tpu.mlir", "_final.mlir"


@dataclass(frozen=True)
class Folder:
    """A folder that `model_transform.py` and `model_deploy.py` left."""

    path: Path

    @cached_property
    def top(self) -> Path:
        """The module after the passes on top ops: NAME.mlir. Raises ConfigError if it is not the only one."""
        others = (ORIGIN, LOWERED, FINAL, "_tpu_opt.mlir")
        found = [p for p in sorted(self.path.glob("*.mlir")) if not p.name.endswith(others)]
        if len(found) != 1:
            raise ConfigError(
                f"folder '{self.path}': one NAME.mlir that model_transform.py wrote is required, got "
                f"{', '.join(p.name for p in found) or 'none'}"
            )
        return found[0]

    @property
    def name(self) -> str:
        """The network's name, with which the names of all its files begin."""
        return self.top.stem

    @property
    def origin(self) -> Path:
        """The module as it was imported."""
        return self.path / f"{self.name}{ORIGIN}"

    @property
    def lowered(self) -> tuple[Path, ...]:
        """The lowered modules, one for each chip and mode."""
        return tuple(sorted(self.path.glob(f"{self.name}_*{LOWERED}")))

    def final_of(self, lowered: Path) -> Path:
        """The final module that is made of a lowered one."""
        return lowered.with_name(lowered.name.removesuffix(LOWERED) + FINAL)

    @property
    def tables(self) -> tuple[Path, ...]:
        """The calibration tables, the files named *cali_table."""
        return tuple(sorted(self.path.glob("*cali_table")))

    @cached_property
    def sample(self) -> dict[str, Tensor]:
        """The network's inputs. Raises ConfigError without NAME_in_f32.npz."""
        path = self.path / f"{self.name}_in_f32.npz"
        if not path.exists():
            raise ConfigError(
                f"folder '{self.path}': the input {path.name} is required, there is none; run model_transform.py with "
                "--test_input"
            )
        return load_tensors(path)

    def reference(self, stem: str) -> Path:
        """The reference of a module: its tensors, which TPU-MLIR computed."""
        return self.path / f"{stem}_outputs.npz"

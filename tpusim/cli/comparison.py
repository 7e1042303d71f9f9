"""`tpusim compare`: two files of tensors, with the same verdict as `tpusim run`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from tpusim.cli.command import Command
from tpusim.cli.options import In, OptionalPath, load
from tpusim.cli.output import Output

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

    from tpusim.verify.about import About
    from tpusim.verify.compare import Comparison

    Tensors = Mapping[str, np.ndarray]


@dataclass
class Compare(Command):
    """Compare two npz files tensor by tensor with upstream's verdicts; comparing nothing fails.

    Files written by tpusim contain the scales of their integers and the tolerance of a run. If machine and flat tensors
    differ, 4_tpu.mlir and inputs.npz in the folder of the reference show whether float ops explain the difference.
    """

    says = "as a comparison in report.json: every tensor with verdict, cosine, euclidean and SQNR"

    target: Annotated[In, tyro.conf.arg(metavar="TARGET.npz")]
    reference: Annotated[In, tyro.conf.arg(metavar="REFERENCE.npz")]
    tolerance: str | None = None
    """Minimum cosine and euclidean similarity; default: the tolerance of a run for such files, else 0.99,0.99."""
    by_channel: bool = False
    """Also require the mean euclidean similarity of a tensor's channels: a large channel hides the others."""
    excepts: str = ""
    """Tensors not to compare, separated by commas."""
    save: OptionalPath = None
    """Also write the results: .csv (as upstream's tool), .json (as in report.json) or .xml (JUnit)."""
    by_layout: bool = False
    """The target is a dump of a board or of another tool: also pair names that differ by TPU-MLIR's suffixes, and
    convert NHWC and 4N layouts where the shapes show them.
    """
    upstream: Annotated[bool, tyro.conf.arg(aliases=["--upstream-sampling"])] = False
    """As npz_tool.py: compare equal names only, a sample of more than 400 tensors, and pass if nothing is compared;
    otherwise the cast X_f32 is compared as X where the other file has only X."""

    def execute(self, console: Output) -> bool:
        """Compare and print; True if everything passed."""
        from tpusim.running.persistence import require_kept
        from tpusim.verify.about import comparable, read_about, unknown_scale, usual_tolerance
        from tpusim.verify.compare import Tolerance, compare
        from tpusim.verify.npz import load_tensors, write_atomically
        from tpusim.verify.render import print_comparison

        tolerance = None if self.tolerance is None else Tolerance.parse(self.tolerance)
        stored = load_tensors(require_kept(self.target)), load_tensors(require_kept(self.reference))
        about = read_about(self.target), read_about(self.reference)
        targets, target_about = self._paired(console, *stored, about[0])
        targets, references = comparable(targets, stored[1], target_about, about[1])
        limits = replace(tolerance or usual_tolerance(*about), by_channel=self.by_channel)
        found = compare(targets, references, limits, **self._choice())
        exact = all(t.bit_exact for t in found.tensors)
        if tolerance is None and not self.by_channel and not exact and self._is_machine_against_flat(about):
            found = self._as_a_run(*stored, about[0])
        if warning := unknown_scale(targets, references):
            console.out(warning, highlight=False)
        for path, said in zip((self.target, self.reference), about, strict=True):
            if said.kept:
                console.out(f"{path} holds only the tensors of {said.kept}", highlight=False)
        names = {"target_name": str(self.target), "reference_name": str(self.reference)}
        print_comparison(console, found, verbose=self.verbose, targets=targets, references=references, **names)
        console.result(**found.to_json())
        if self.save is not None:
            text = self._as_text(found, self.save).encode()
            write_atomically(self.save, lambda file: file.write(text))
        return found.passed

    def _paired(
        self, console: Output, targets: "Tensors", references: "Tensors", about: "About"
    ) -> "tuple[Tensors, About]":
        """Targets under the references' names and, with --by-layout, in their layouts; prints the changes."""
        from tpusim.verify.pairing import paired, renamed

        if self.upstream and not self.by_layout:
            return targets, about
        found = (paired if self.by_layout else renamed)(targets, references)
        for note in found.notes:
            console.out(note, highlight=False)
        missing = [name for name in references if name not in found.targets] if self.by_layout else []
        for name in missing:
            console.out(f"missing in the target: {name}", highlight=False)
        if missing:
            console.out(f"{len(missing)} of {len(references)} tensors are missing in the target", highlight=False)
        return found.targets, about.renamed(found.names)

    def _as_text(self, found: "Comparison", path: "Path") -> str:
        """The results in the format of a file's suffix; CSV for any other suffix."""
        match path.suffix:
            case ".json":
                return json.dumps(found.to_json(), indent=2) + "\n"
            case ".xml":
                from tpusim.verify.junit import to_junit

                return to_junit(found, name=f"{self.target.name} against {self.reference.name}")
            case _:
                return found.to_csv()

    def _choice(self) -> dict[str, Any]:
        excepts = tuple(n for n in self.excepts.split(",") if n)
        return {"excepts": excepts, "upstream": self.upstream}

    def _is_machine_against_flat(self, about: "tuple[About, About]") -> bool:
        files = [self.reference.parent / name for name in ("4_tpu.mlir", "inputs.npz")]
        return (about[0].level, about[1].level) == ("local", "tpu") and all(path.is_file() for path in files)

    def _as_a_run(self, machine: "Tensors", flat: "Tensors", about: "About") -> "Comparison":
        """By the rule of "bit-exact": floats upstream of an integer may explain that it differs."""
        from tpusim.running.agreement import compare_local
        from tpusim.verify.npz import load_tensors

        folder = self.reference.parent
        tpu, inputs = load(folder / "4_tpu.mlir"), load_tensors(folder / "inputs.npz")
        return compare_local(
            tpu, inputs, _with_bf16(machine), _with_bf16(flat), with_qtable=about.mixed, **self._choice()
        )


def _with_bf16(tensors: "Tensors") -> "Tensors":
    """The tensors with uint16, which in a file means the bits of bf16, converted to bf16."""
    import numpy as np

    from tpusim.isa.region import numpy_dtype

    return {n: v.view(numpy_dtype("bf16")) if v.dtype == np.uint16 else v for n, v in tensors.items()}

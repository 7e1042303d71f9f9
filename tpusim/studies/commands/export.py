"""`tpusim export`: a network for other programs, as ONNX, QDQ ONNX, StableHLO or TOSA."""

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from tpusim.cli.command import Command
from tpusim.cli.options import (
    Calibration,
    CalibrationOptions,
    Lowering,
    LoweringOptions,
    Network,
    NetworkOptions,
    NetworkPath,
    OptionalPath,
    Preprocessing,
    PreprocessOptions,
    folder_of,
    load,
    network_of,
)
from tpusim.cli.output import Output
from tpusim.errors import ConfigError

if TYPE_CHECKING:
    from tpusim.cli.options import Options
    from tpusim.ir.module import Model

BY_SUFFIX = {".mlir": "text", ".mlirbc": "artefact", ".jax": "for_jax"}
"""What a file of StableHLO contains, by the end of its name."""
TOSA_BY_SUFFIX = (".mlir", ".mlirbc", ".tosa")
"""Text, bytecode and flatbuffer of TOSA."""


@dataclass
class Export(Command):
    """Write a network for other programs: as ONNX, QDQ ONNX, StableHLO or TOSA.

    qdq: the nodes of the ONNX model with the integers of 4_tpu.mlir, for ONNX Runtime. Takes MODEL.onnx and the
    4_tpu.mlir made from it, the folder of a run, or a model alone, which is compiled. Where no ONNX model is at hand,
    the nodes are those of `--to onnx`. Properties of the chip that QDQ cannot express are printed, and are in the
    file's metadata (`tpusim.differences`).

    onnx: a float module (1_top.mlir to 3_calibrated.mlir) as ONNX nodes, whatever it was imported from. Takes a module,
    or what qdq takes, of which 2_canonical.mlir is written.

    stablehlo: any stage, computed exactly as here, for XLA, IREE and JAX. Takes a module, or what qdq takes, of which
    4_tpu.mlir is written.

    tosa: a float module, or a lowered one in the same integers, as TOSA 1.0 for the int and fp profiles. Takes what
    stablehlo takes. All ops that TOSA cannot say are named.
    """

    says = (
        "of qdq the `differences` to the chip, of onnx the `nodes` by kind, of stablehlo `inputs`, `results` and "
        "`weights` of the function, of tosa `inputs`, `results` and the `ops` by kind"
    )

    model: NetworkPath
    module: Annotated[tyro.conf.Positional[OptionalPath], tyro.conf.arg(metavar="[4_tpu.mlir]")] = None
    """The lowered module of a MODEL; default: that of the folder, or MODEL is compiled."""
    to: Literal["qdq", "onnx", "stablehlo", "tosa"] = "qdq"
    """The format."""
    out: OptionalPath = None
    """File to write; default MODEL_CHIP_qdq.onnx, MODEL_float.onnx, MODEL_stablehlo.mlir or MODEL_tosa.mlir in the
    module's folder. StableHLO is text in a .mlir, a portable artefact in a .mlirbc; a .jax is what
    `jax.export.deserialize` reads. TOSA is text in a .mlir, bytecode in a .mlirbc, a flatbuffer in a .tosa (extra
    'tosa')."""
    weights: Literal["constants", "arguments"] = "constants"
    """With --to stablehlo: where weights are. Arguments follow the inputs; their values are written next to the file,
    into an .npz in their order."""
    open_batch: bool = False
    """With --to stablehlo: leave the number of samples open."""
    network: Network = NetworkOptions()
    preprocessing: Preprocessing = PreprocessOptions()
    calibration: Calibration = CalibrationOptions()
    lowering: Lowering = LoweringOptions()

    def execute(self, console: Output) -> bool:
        """Write the file, and print what its reader must know."""
        if self.to == "stablehlo":
            return self._stablehlo(console)
        useless = [
            flag
            for flag, given in (("--weights", self.weights != "constants"), ("--open-batch", self.open_batch))
            if given
        ]
        if useless:
            raise ConfigError(f"{' and '.join(useless)}: needs --to stablehlo, got --to {self.to}; leave it out")
        return {"onnx": self._onnx, "qdq": self._qdq, "tosa": self._tosa}[self.to](console)

    def _qdq(self, console: Output) -> bool:
        """QDQ ONNX, and its differences to the chip."""
        from tpusim.studies.export import export_qdq
        from tpusim.verify.npz import write_atomically

        given = network_of(self.model, self._options)
        tpu = given.tpu if self.module is None else network_of(self.module, ()).tpu
        source = given.floats if given.model_path is None else str(given.model_path)
        found = export_qdq(source, tpu, input_shapes=given.config.input_shapes, cut=given.config.cut)
        chip, stem = tpu.chip, (given.model_path or self.module or self.model).stem
        path = self.out or folder_of(self.module or self.model) / f"{stem}_{chip}_qdq.onnx"
        write_atomically(path, lambda file: file.write(found.model.SerializeToString()))
        console.result(differences=list(found.differences))
        for number, told in enumerate(found.differences, 1):
            console.print(f"{number}. {told}", markup=False, highlight=False, soft_wrap=True)
        console.wrote(path, f"{len(found.differences)} differences to {chip}")
        return True

    def _onnx(self, console: Output) -> bool:
        """A float module as ONNX, and the kinds of its nodes."""
        from tpusim.ir.content import is_module
        from tpusim.studies.export import export_onnx
        from tpusim.verify.npz import write_atomically

        given = self.module or self.model
        module = load(given) if not given.is_dir() and is_module(given) else network_of(given, self._options).floats
        written = export_onnx(module)
        path = self.out or folder_of(given) / f"{given.stem}_float.onnx"
        write_atomically(path, lambda file: file.write(written.proto.SerializeToString()))
        kinds = Counter(node.op_type for node in written.proto.graph.node)
        console.result(nodes=dict(sorted(kinds.items())))
        console.wrote(path, f"{kinds.total()} nodes: {', '.join(f'{n} {kind}' for kind, n in kinds.most_common())}")
        return True

    def _stablehlo(self, console: Output) -> bool:
        """StableHLO, and the arguments and results of its function."""
        from tpusim.inference import to_stablehlo
        from tpusim.verify.npz import save_tensors, write_atomically

        path = self.out or folder_of(self.module or self.model) / f"{(self.module or self.model).stem}_stablehlo.mlir"
        form = BY_SUFFIX.get(path.suffix)
        if form is None:
            raise ConfigError(f"--out {path}: with --to stablehlo one of {', '.join(BY_SUFFIX)} is required as its end")
        found = to_stablehlo(self._module(), open_batch=self.open_batch, arguments=self.weights == "arguments")
        content: str | bytes = getattr(found, form)
        write_atomically(path, lambda file: file.write(content.encode() if isinstance(content, str) else content))
        console.result(
            inputs=list(map(str, found.inputs)), results=list(map(str, found.results)), weights=list(found.weights)
        )
        for what, those in (("input", found.inputs), ("result", found.results)):
            for number, one in enumerate(those):
                console.print(f"{what} {number}  {one}", markup=False, highlight=False, soft_wrap=True)
        console.wrote(path)
        if found.weights:
            beside = path.with_name(f"{path.stem}_weights.npz")
            save_tensors(beside, found.weights)
            console.wrote(beside, f"{len(found.weights)} arguments")
        return True

    def _tosa(self, console: Output) -> bool:
        """TOSA, and the arguments and results of its function."""
        from tpusim.studies.export.tosa import to_tosa
        from tpusim.studies.export.tosa.flatbuffer import to_flatbuffer
        from tpusim.verify.npz import write_atomically

        path = self.out or folder_of(self.module or self.model) / f"{(self.module or self.model).stem}_tosa.mlir"
        if path.suffix not in TOSA_BY_SUFFIX:
            raise ConfigError(f"--out {path}: with --to tosa one of {', '.join(TOSA_BY_SUFFIX)} is required as its end")
        found = to_tosa(self._module())
        if path.suffix == ".tosa":
            content = to_flatbuffer(found, f"--out {path}")
        else:
            content = found.bytecode if path.suffix == ".mlirbc" else found.text.encode()
        write_atomically(path, lambda file: file.write(content))
        kinds = found.kinds
        console.result(inputs=list(map(str, found.inputs)), results=list(map(str, found.results)), ops=kinds)
        for what, those in (("input", found.inputs), ("result", found.results)):
            for number, one in enumerate(those):
                console.print(f"{what} {number}  {one}", markup=False, highlight=False, soft_wrap=True)
        console.wrote(path, f"{sum(kinds.values())} ops: {', '.join(f'{n} {kind}' for kind, n in kinds.items())}")
        return True

    def _module(self) -> "Model":
        """The module to write: a given one as it is, else the lowered one of the network."""
        from tpusim.ir.content import is_module

        given = self.module or self.model
        if not given.is_dir() and is_module(given):
            return load(given)
        return network_of(given, self._options).tpu

    @property
    def _options(self) -> "tuple[Options, ...]":
        return self.network, self.preprocessing, self.calibration, self.lowering

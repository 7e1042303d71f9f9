"""ONNX Runtime as the reference: every tensor of the original model, by ONNX name."""

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from tpusim.errors import ImportModelError
from tpusim.frontend.cut import WHOLE, Cut
from tpusim.frontend.onnx.cutting import cut_out
from tpusim.frontend.onnx.element_types import dtype_of
from tpusim.frontend.onnx.model_file import (
    PROTO_LIMIT,
    Source,
    check_inputs,
    declare_inputs,
    graph_inputs,
    live_nodes,
    model_label,
    proto_bytes,
    read_onnx,
    reads,
    save_external,
    weight_bytes,
)
from tpusim.frontend.onnx.prequantised import without_pairs
from tpusim.frontend.onnx.session import Session

IN_MEMORY = 16 << 20
"""A model with more bytes of weights is given to ONNX Runtime as a file; a model in memory would be copied twice."""


class OnnxReference:
    """A session of the original model that returns named tensors; make it once, run it on many samples.

    Args: source: path or ModelProto. names: tensors to return, None for every tensor a node makes. input_shapes: as
    for `import_onnx`, as is `cut`. threads: of ONNX Runtime, 0 for its default. pairs: compute Q and DQ nodes (a
    network is imported without them). integers: let ONNX Runtime use integer kernels for them (`Session`).
    """

    level = "onnx"

    def __init__(
        self,
        source: Source,
        names: Iterable[str] | None = None,
        *,
        input_shapes: Mapping[str, Sequence[int]] | None = None,
        threads: int = 0,
        cut: Cut = WHOLE,
        pairs: bool = True,
        integers: bool = False,
    ) -> None:
        self._label = model_label(source)
        proto = cut_out(cut, read_onnx(source), input_shapes, self._label)
        proto = proto if pairs else without_pairs(proto)[0]
        if isinstance(source, onnx.ModelProto) and proto is source:  # the copy is modified below
            proto = onnx.ModelProto()
            proto.CopyFrom(source)
        nodes = live_nodes(proto.graph)
        used = {n for node in nodes for n in reads(node)}
        inputs = [i for i in graph_inputs(proto.graph, input_shapes, self._label) if i.name in used]
        check_inputs(inputs, self._label)
        declare_inputs(proto.graph, inputs)
        made = [n for node in nodes for n in node.output if n]
        self._names = list(dict.fromkeys(made if names is None else names))
        self._require_known(made, [i.name for i in inputs])
        del proto.graph.node[:], proto.graph.output[:]
        proto.graph.node.extend(nodes)
        proto.graph.output.extend(onnx.ValueInfoProto(name=n) for n in self._names)
        self.inputs: dict[str, tuple[int, ...]] = {i.name: i.shape or () for i in inputs}
        self._dtypes = {i.name: dtype_of(i.elem_type) for i in inputs}
        self._session = self._open(proto, threads, integers=integers)

    def _require_known(self, made: Sequence[str], inputs: Sequence[str]) -> None:
        unknown = sorted(set(self._names) - set(made) - set(inputs))
        if unknown:
            raise ImportModelError(f"model '{self._label}': no tensor named {', '.join(map(repr, unknown[:5]))}")
        self._names = [n for n in self._names if n not in inputs]

    def _open(self, proto: onnx.ModelProto, threads: int, *, integers: bool) -> Session:
        try:
            if weight_bytes(proto.graph) <= IN_MEMORY and proto_bytes(proto) <= PROTO_LIMIT:
                return Session(proto.SerializeToString(), threads=threads, integers=integers)
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "model.onnx"
                save_external(proto, path)
                return Session(path, threads=threads, integers=integers)
        except ImportModelError as error:
            raise ImportModelError(f"model '{self._label}': {error}") from error

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The tensors by name for one set of inputs, which are converted to the model's types.

        Raises ImportModelError for a missing or misshapen input.
        """
        feeds: dict[str, np.ndarray] = {}
        for name, shape in self.inputs.items():
            if name not in inputs:
                given = ", ".join(sorted(inputs)) or "(none)"
                raise ImportModelError(f"model '{self._label}': input '{name}' is missing; given are {given}")
            feeds[name] = np.asarray(inputs[name]).astype(self._dtypes[name], copy=False)
            if feeds[name].shape != shape:
                raise ImportModelError(
                    f"model '{self._label}': input '{name}' has shape {shape}, got {feeds[name].shape}"
                )
        try:
            return self._session.run(self._names, feeds)
        except ImportModelError as error:
            raise ImportModelError(f"model '{self._label}': {error}") from error


def onnx_outputs(
    source: Source,
    inputs: Mapping[str, np.ndarray],
    names: Iterable[str] | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
) -> dict[str, np.ndarray]:
    """Run a model once in ONNX Runtime; every tensor (or the named ones) by ONNX name."""
    return OnnxReference(source, names, input_shapes=input_shapes).run(inputs)

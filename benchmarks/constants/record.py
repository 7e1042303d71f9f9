"""python -m benchmarks.constants.record [OP ...]: compile the networks with the real tool and keep their profiles.

TPUSIM_UPSTREAM names the tool's environment (benchmarks/conformance/upstream.py). Cases that are recorded stay.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import msgspec
import onnx

from benchmarks.conformance.upstream import Upstream, UpstreamError
from benchmarks.constants.networks import CASES, Case
from benchmarks.constants.recorded import FILE, Layers, layers, write

TABLE = "# table\n###\n# op_name    threshold    min    max\nx 2.0 -2.0 2.0\n{} 2.0 -2.0 2.0\n"


def measured(case: Case, upstream: Upstream) -> Layers:
    """The profile of a case. Raises UpstreamError if the tool stops, or writes none."""
    with tempfile.TemporaryDirectory(prefix="tpusim-constants-") as place:
        folder, proto = Path(place), case.network()
        onnx.save(proto, folder / "m.onnx")
        upstream.run(folder, "model_transform.py", "--model_name", "m", "--model_def", "m.onnx", "--mlir", "m.mlir")
        options = ["--quantize", case.mode.upper(), "--processor", case.chip, "--model", "m.bmodel"]
        if case.mode == "int8":
            (folder / "table").write_text(TABLE.format(f"y_{proto.graph.node[0].op_type}"), encoding="utf-8")
            options += ["--calibration_table", "table"]
        upstream.run(folder, "model_deploy.py", "--mlir", "m.mlir", *options)
        written = folder / "compiler_profile_0.txt"
        if not written.exists():
            raise UpstreamError(f"{case.key}: a profile is required, got none; this chip has none")
        return layers(written.read_text(encoding="utf-8"))


def main(ops: list[str]) -> int:
    """Record what is missing; cases that the tool refuses are told."""
    upstream, failed = Upstream.find(), 0
    known = msgspec.json.decode(FILE.read_bytes(), type=dict[str, Layers]) if FILE.exists() else {}
    for case in CASES:
        if case.key in known or (ops and case.op not in ops):
            continue
        try:
            known[case.key] = measured(case, upstream)
        except UpstreamError as error:
            failed += 1
            print(f"{case.key}: {error}", file=sys.stderr)
        else:
            print(case.key, flush=True)
            write(known)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

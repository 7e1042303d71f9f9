"""The properties of a module that a QDQ file cannot express, as sentences."""

from collections import defaultdict
from collections.abc import Collection

from tpusim.canonicalize import QUIRKS
from tpusim.errors import option
from tpusim.fidelity.card import fidelity_of
from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model
from tpusim.ir.types import uniform_of
from tpusim.ops.cast import TpuCast
from tpusim.ops.framework.base import TpuOp
from tpusim.studies.export.products import fallback_of

REQUANT = (
    "every requant: ONNX Runtime multiplies accumulators by a float and rounds halves to even, the chip by an integer "
    "and a shift and rounds halves as docs/spec/numerics.md 4 says: results may differ by one step"
)
EXACT_IN_FLOAT = frozenset(
    {"tpu.Reshape", "tpu.Permute", "tpu.Slice", "tpu.Concat", "tpu.Gather", "tpu.Tile", "tpu.Pad"}
)


def differences(tpu: Model, written: Collection[str], exact: Collection[str]) -> list[str]:
    """One sentence per difference. written: ops whose tensor has Q and DQ in the file; exact: integer products."""
    found, in_float = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    unwritten: list[str] = []
    for op in tpu.ops:
        if not isinstance(op, TpuOp) or isinstance(op, TpuCast):
            continue
        name = op_name(op)
        if uniform_of(op.results[0]) is None:
            in_float[fallback_of(op) or "the chip computes it in float"].append(name)
        elif name not in written:
            unwritten.append(name)
        elif name not in exact and op.name not in EXACT_IN_FLOAT:
            found[op.name.removeprefix("tpu.")].append(name)
    told = [REQUANT]
    told += [
        f"{kind}: in float between DQ and Q, on the chip in integers: {_some(names)}" for kind, names in found.items()
    ]
    told += [
        f"no Q and DQ: in the chip's float type on the chip, in f32 in the file ({why}): {_some(names)}"
        for why, names in in_float.items()
    ]
    if unwritten:
        told.append(f"without Q and DQ, because the ONNX model has no such tensor: {_some(unwritten)}")
    return told


def reinterpreted(tpu: Model) -> list[str]:
    """One sentence for each rule by which TPU-MLIR gives nodes of the ONNX model another meaning, if the nodes stay."""
    marked = [found for op in tpu.ops if isinstance(op, TpuOp) and (found := fidelity_of(op)).decisions]
    named = {rule: [one.op for one in marked if rule.decision in one.decisions] for rule in sorted(QUIRKS)}
    return [
        f"ONNX's meaning in the file, TPU-MLIR's on the chip ({rule.rule.number}: {rule.rule.does}; "
        f"{option('quirks_off', str(rule))} when compiling gives ONNX's): {_some(names)}"
        for rule, names in named.items()
        if names
    ]


def _some(names: list[str]) -> str:
    return ", ".join(names[:6]) + (f" ... ({len(names)} in all)" if len(names) > 6 else "")

"""ONNX's backend suites through `tpusim.backend`: the result of each case, and the page of results.

`make onnx-coverage` runs this file: it runs every case of every suite whose data lie in the onnx package, and writes
docs/onnx_coverage.md and tests/onnx_excluded.json (case -> why it is refused), which test_onnx_nodes.py reads. A case
that is wrong or crashes is in neither: then nothing is written.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal
from zlib import crc32

import onnx
from onnx import numpy_helper
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

import tpusim.backend
from tpusim.errors import TpusimError
from tpusim.host.files import replacing

ROOT = Path(__file__).parents[1]
PAGE, EXCLUDED = ROOT / "docs" / "onnx_coverage.md", ROOT / "tests" / "onnx_excluded.json"
SUITES = ("node", "simple", "pytorch-converted", "pytorch-operator", "real")
"""`real` are nine classic networks, which lie in the onnx package as its `light` data: constants instead of weights."""
PARTS = 96
"""The cases of a suite in so many parts, by the hash of their names."""

ELSE = {
    "test_dft_inverse_opset19": "the suite has the rounding noise of an f32 transform where the result is 0",
    "test_dft_inverse": "the suite has the rounding noise of an f32 transform where the result is 0",
    "test_resize_downsample_scales_linear_align_corners": "the suite spreads over an extent that is not rounded",
}
"""Cases whose expected results are not those of ONNX's definition, and why."""

Status = Literal["passed", "folded", "refused", "wrong", "crashed"]


@dataclass(frozen=True)
class Outcome:
    """What a case came to; folded: it passes, and its results were constant when the model was compiled."""

    status: Status
    why: str = ""


@cache
def suite(kind: str = "node") -> tuple[TestCase, ...]:
    """All cases. Making the node cases takes ten seconds, most for pools in Python: they are kept between runs."""
    if kind != "node":
        return tuple(load_model_tests(kind=kind))
    kept = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tpusim" / f"nodes-{onnx.__version__}"
    if not kept.exists():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the suite's NumPy code overflows and divides by zero on purpose
            made = pickle.dumps(tuple(load_model_tests(kind="node")))
        with replacing(kept) as unfinished:
            unfinished.write_bytes(made)
    return pickle.loads(kept.read_bytes())


def part(number: int, kind: str = "node") -> list[TestCase]:
    """One of the PARTS of a suite."""
    return [case for case in suite(kind) if crc32(case.name.encode()) % PARTS == number]


def excluded(kind: str = "node") -> dict[str, str]:
    """Why cases are refused, by name."""
    return json.loads(EXCLUDED.read_text())[kind]


def outcome(case: TestCase) -> Outcome:
    """Run a case as ONNX's runner does, with its comparison and its tolerances."""
    model, sets = _content(case)
    try:
        ready = tpusim.backend.prepare(model)
        for inputs, wanted in sets:
            found = ready.run([_value(x) for x in inputs])
            Runner.assert_similar_outputs([_value(y) for y in wanted], list(found), rtol=case.rtol, atol=case.atol)
    except TpusimError as error:
        return Outcome("refused", reason(error))
    except AssertionError as error:
        if case.name in ELSE:
            return Outcome("refused", ELSE[case.name])
        return Outcome("wrong", str(error)[:500])
    except Exception as error:  # noqa: BLE001  that is what is looked for
        return Outcome("crashed", repr(error)[:500])
    return Outcome("folded" if ready.is_constant else "passed")


def _content(case: TestCase) -> tuple[onnx.ModelProto, list[tuple[list[Any], list[Any]]]]:
    """The model and its data, which lie in files in all suites but the node cases."""
    if case.model is not None:
        return case.model, [(list(inputs), list(outputs)) for inputs, outputs in case.data_sets or ()]
    if case.url is not None:
        return _light(case.url, case.model_name)
    folder = Path(case.model_dir or "")
    model = onnx.load(folder / "model.onnx")
    return model, [
        (_stored(data, "input", model.graph.input), _stored(data, "output", model.graph.output))
        for data in sorted(folder.glob("test_data_set*"))
    ]


def _light(place: str, name: str) -> tuple[onnx.ModelProto, list[tuple[list[Any], list[Any]]]]:
    """A network of the suite `real` with the input that ONNX's runner makes for it, and the results in its folder."""
    path = Path(onnx.__file__).parents[1] / place
    model = onnx.load(path)
    initializers = {i.name for i in model.graph.initializer}
    given = [i for i in model.graph.input if i.name not in initializers]
    runner: Any = Runner
    inputs = [runner.generate_dummy_data(i, seed=0, name=name, random=False) for i in given]
    results = [path.with_name(f"{path.stem}_output_{i}.pb").read_bytes() for i in range(len(model.graph.output))]
    return model, [(inputs, [onnx.TensorProto.FromString(content) for content in results])]


def _stored(folder: Path, what: str, values: Iterable[onnx.ValueInfoProto]) -> list[Any]:
    found: list[Any] = []
    for i, value in enumerate(list(values)[: len(list(folder.glob(f"{what}_*.pb")))]):
        content = (folder / f"{what}_{i}.pb").read_bytes()
        if value.type.HasField("sequence_type"):
            sequence = onnx.SequenceProto.FromString(content)
            found.append(numpy_helper.to_list(sequence))
        elif value.type.HasField("optional_type"):
            found.append(numpy_helper.to_optional(onnx.OptionalProto.FromString(content)))
        else:
            found.append(onnx.TensorProto.FromString(content))
    return found


def _value(x: Any) -> Any:
    return numpy_helper.to_array(x) if isinstance(x, onnx.TensorProto) else x


def reason(error: TpusimError) -> str:
    """Why, without the names of model, node and tensors."""
    lines = [line.strip() for line in str(error).splitlines()]
    return lines[1] if len(lines) > 1 else lines[0]


# ----------------------------------------------------------------------------------------------------------- the page


def main() -> None:
    """Run everything; write the list and the page."""
    warnings.simplefilter("ignore")
    found = {kind: {case.name: outcome(case) for case in suite(kind)} for kind in SUITES}
    bad = {name: o for cases in found.values() for name, o in cases.items() if o.status in ("wrong", "crashed")}
    for name, o in bad.items():
        sys.stderr.write(f"{name} {o.status}: {o.why}\n")
    if bad:
        raise SystemExit(1)
    listed = {kind: {n: o.why for n, o in cases.items() if o.status == "refused"} for kind, cases in found.items()}
    EXCLUDED.write_text(json.dumps(listed, indent=1) + "\n")
    PAGE.write_text(page(found))


def page(found: Mapping[str, Mapping[str, Outcome]]) -> str:
    """docs/onnx_coverage.md."""
    return "\n".join([*_head(found), *_by_op(found["node"]), *_reasons(found)]) + "\n"


def _head(found: Mapping[str, Mapping[str, Outcome]]) -> list[str]:
    lines = [
        "# ONNX coverage",
        "",
        f"The backend suites of onnx {onnx.__version__} through `tpusim.backend`, which computes the top module flat",
        "in f32. `make onnx-coverage` runs them and writes this page. *folded* cases pass too, but nothing of them was",
        "left to compute: their results were constant when the model was compiled. Every refusal is an error that",
        "names the node and the reason; no case gives a wrong result or crashes.",
        "",
        "| suite | cases | passed | folded | refused |",
        "|---|---|---|---|---|",
    ]
    for kind, cases in found.items():
        counts = Counter(o.status for o in cases.values())
        lines.append(f"| {kind} | {len(cases)} | {counts['passed']} | {counts['folded']} | {counts['refused']} |")
    return lines


def _op_of(case: TestCase) -> str:
    assert case.model is not None
    nodes = case.model.graph.node
    return nodes[0].op_type if len(nodes) == 1 else "(function bodies)" if "expanded" in case.name else "(several ops)"


def _by_op(cases: Mapping[str, Outcome]) -> list[str]:
    by_op: dict[str, Counter[str]] = defaultdict(Counter)
    for case in suite("node"):
        by_op[_op_of(case)][cases[case.name].status] += 1
    lines = ["", "## Node cases by op", "", "| op | passed | folded | refused |", "|---|---|---|---|"]
    rows = (f"| {op} | {c['passed']} | {c['folded']} | {c['refused']} |" for op, c in sorted(by_op.items()))
    return [*lines, *rows]


def _reasons(found: Mapping[str, Mapping[str, Outcome]]) -> list[str]:
    lines = ["", "## What is refused, and why", ""]
    for kind, cases in found.items():
        groups: dict[str, list[str]] = defaultdict(list)
        for name, o in cases.items():
            if o.status == "refused":
                groups[re.sub(r"'[^']*'", "'...'", o.why)].append(name)
        lines += [f"### {kind}", ""] if groups else []
        for why, names in sorted(groups.items(), key=lambda item: -len(item[1])):
            lines += [f"* {why}: {', '.join(sorted(names))}"]
        lines += [""] if groups else []
    return lines[:-1]


__all__ = ["EXCLUDED", "PARTS", "Outcome", "excluded", "outcome", "part", "suite"]

if __name__ == "__main__":
    main()

"""ONNX's own node tests (onnx.backend.test) for every op type that tpusim imports: float inference of the top module.

What tpusim refuses or does otherwise is in EXCLUDED with its reason; an exclusion that no case needs is a failure.
"""

from __future__ import annotations

import logging
import os
import pickle
import re
import warnings
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test.case.test_case import TestCase
from plain_names import import_onnx

from tpusim.errors import TpusimError
from tpusim.frontend.onnx.table import MAPPERS
from tpusim.inference import run
from tpusim.ir.attrs import value_name
from tpusim.ir.files import replacing

LOG = logging.getLogger(__name__)

IMPORTED = (frozenset(MAPPERS) | {"Dropout", "Identity"}) - {"Cast"}
"""Op types with a mapper, and those the importer removes. Casts are between f32, bool and index only; the suite's are
of other types (rows of op_cases_logic.py have ours)."""

RTOL, ATOL = 1e-4, 1e-5
"""f32 sums, exponentials and powers in another order than NumPy's; the longest sums of the suite have 1,000 terms."""

PARAMETERS: dict[str, tuple[int, ...]] = {
    "BatchNormalization": (1, 2, 3, 4),
    "Clip": (1, 2),
    "ConvTranspose": (1, 2, 3),
    "Gemm": (1, 2),
    "PRelu": (1,),
    "Pad": (2,),
    "Resize": (1, 2),
    "Upsample": (1,),
}
"""Inputs that are constants in networks (and must be, here) though the suite feeds them; so is non-float input."""

INTEGER_DATA = (
    "network inputs are float32; the integers (strings) of this case are constants here, and nothing is left to compute"
)
INDICES = "the second output of MaxPool (Indices) is not supported"
DILATED = "pools have no dilation"
TRAINING = "training form"
MASK = "the mask output of Dropout is not supported"

EMPTY = "tensors without elements are refused"
SLOPES = "slopes that differ along another axis than the channels are refused"
FIRST_OUTPUT = frozenset({"LayerNormalization"})
"""Op types of which only the first output is imported; the others are left out of the suite's models."""
NONE_LEFT = frozenset({"PRelu"})
"""Op types whose cases are all excluded."""

EXCLUDED: dict[str, str] = {
    r"test_(add|mul)_u?int\d+": INTEGER_DATA,
    r"test_clip_default_int8_.*": INTEGER_DATA,
    r"test_(sub|div|max|min)_u?int\d+(_trunc)?": INTEGER_DATA,
    r"test_(max|min)_float(16|64)": INTEGER_DATA,
    r"test_(greater|less)(_equal)?_u?int\d+(_expanded)?": INTEGER_DATA,
    r"test_equal(_u?int\d+|_bcast|_string|_string_broadcast)?": INTEGER_DATA,
    r"test_(edge|reflect)_pad": INTEGER_DATA,
    r"test_wrap_pad": "mode wrap is refused",
    r"test_slice_start_out_of_bounds": EMPTY,
    r"test_split_zero_size_splits_opset\d+": EMPTY,
    r"test_resize_downsample_scales_linear_align_corners": "the suite spreads over an unrounded extent",
    r"test_resize_.*_cubic.*": "cubic interpolation is refused",
    r"test_resize_.*antialias": "filters of antialias are refused",
    r"test_resize_tf_crop_and_resize.*": "coordinates of a region of interest are refused",
    r"test_resize_.*half_pixel_symmetric": "half_pixel_symmetric coordinates are refused",
    r"test_resize_.*_not_(larger|smaller)": "keep_aspect_ratio_policy other than stretch is refused",
    r"test_maxpool_2d_uint8": INTEGER_DATA,
    r"test_(average|max)pool_[23]d_dilations.*": DILATED,
    r"test_averagepool_2d_ceil_last_window_starts_on_pad": "count_include_pad together with ceil_mode is refused",
    r"test_maxpool_with_argmax_2d_.*": INDICES,
    r"test_batchnorm_.*_training_mode": TRAINING,
    r"test_training_dropout.*": TRAINING,
    r"test_dropout_default_mask.*": MASK,
    r"test_identity_(sequence|opt)": "sequences and optionals are no tensors",
    r"test_matmul_(1d_3d|4d_1d|1d_1d)": "a vector operand of MatMul is refused; exporters write matrices",
    r"test_prelu_(example|broadcast)": SLOPES,
    r"test_reduce_.*_empty_set(_expanded|_non_reduced_axis_zero)?": EMPTY,
    r"test_reduce_(max|min)_empty_set_bool": EMPTY,
    r"test_reshape_allowzero_reordered": "an input with an extent of 0 is not static",
}
"""Full-match patterns of case names -> why tpusim does not do them."""


@cache
def suite() -> tuple[TestCase, ...]:
    """Every node test. Making them takes ten seconds, most for pools in Python, so they are kept between test runs."""
    kept = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tpusim" / f"nodes-{onnx.__version__}"
    if not kept.exists():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the suite's NumPy code overflows and divides by zero on purpose
            from onnx.backend.test.loader import load_model_tests

            made = pickle.dumps(tuple(load_model_tests(kind="node")))
        with replacing(kept) as unfinished:
            unfinished.write_bytes(made)
    return pickle.loads(kept.read_bytes())


def op_types(case: TestCase) -> set[str]:
    return {node.op_type for node in case.model.graph.node}


def is_covered(case: TestCase) -> bool:
    return op_types(case) <= IMPORTED


def reason(case: TestCase) -> str | None:
    return next((why for pattern, why in EXCLUDED.items() if re.fullmatch(pattern, case.name)), None)


def bound(case: TestCase, inputs: list[Any]) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """The model with parameters and integers as constants, and the values of the inputs that remain.

    Network inputs are float32: a bool input becomes one of 0 and 1 that is cast to bool.
    """
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    node = model.graph.node[0]
    fixed = {node.input[i] for i in PARAMETERS.get(node.op_type, ()) if i < len(node.input)}
    if node.op_type in FIRST_OUTPUT:
        del node.output[1:], model.graph.output[1:]
    remaining: list[onnx.ValueInfoProto] = []
    feeds: dict[str, np.ndarray] = {}
    casts: list[onnx.NodeProto] = []
    for info, value in zip(model.graph.input, inputs, strict=True):
        array = value if isinstance(value, list) or value is None else np.asarray(value)
        if isinstance(array, np.ndarray) and array.dtype == np.bool_ and info.name not in fixed:
            feeds[info.name + "_real"] = array.astype(np.float32)
            shape = [d.dim_value for d in info.type.tensor_type.shape.dim]
            remaining.append(helper.make_tensor_value_info(info.name + "_real", TensorProto.FLOAT, shape))
            casts.append(helper.make_node("Cast", [info.name + "_real"], [info.name], to=TensorProto.BOOL))
        elif isinstance(array, np.ndarray) and (array.dtype != np.float32 or info.name in fixed):
            model.graph.initializer.append(numpy_helper.from_array(array, info.name))
        else:
            remaining.append(info)
            feeds[info.name] = array  # type: ignore[assignment]
    if casts and model.opset_import[0].version < 6:  # Cast names its type by a string there; Not has not changed since
        model.opset_import[0].version = 13
    nodes = [*casts, *model.graph.node]
    del model.graph.input[:], model.graph.node[:]
    model.graph.input.extend(remaining)
    model.graph.node.extend(nodes)
    return model, feeds


def problem(case: TestCase) -> str | None:
    """What is wrong with tpusim's answer, None if it is the suite's."""
    for inputs, outputs in case.data_sets:
        model, feeds = bound(case, list(inputs))
        try:
            top = import_onnx(model)
        except TpusimError as error:
            return str(error)
        found = run(top, feeds)
        for value, expected in zip(top.results, outputs[: len(model.graph.output)], strict=True):
            if expected.dtype.kind in "bi":  # bools and indices are f32 in a top module
                expected = expected.astype(np.float32)
            try:
                np.testing.assert_allclose(found[value_name(value)], expected, rtol=RTOL, atol=ATOL, strict=True)
            except AssertionError as error:
                return str(error)
    return None


def test_census() -> None:
    """Every imported op type is in the suite; what is left out is counted by op type (log level INFO shows it)."""
    covered = Counter(t for case in suite() if is_covered(case) for t in op_types(case))
    skipped = Counter(t for case in suite() if not is_covered(case) for t in op_types(case) - IMPORTED)
    LOG.info("cases by imported op type: %s", dict(covered.most_common()))
    LOG.info("cases left out, by op type that is not imported: %s", dict(skipped.most_common()))
    assert set(covered) == IMPORTED
    assert not set(skipped) & IMPORTED
    assert sum(covered.values()) >= 180
    assert all(skipped.keys() & op_types(case) for case in suite() if not is_covered(case))


@pytest.mark.parametrize("op_type", sorted(IMPORTED))
def test_node_cases(op_type: str) -> None:
    cases = [c for c in suite() if is_covered(c) and op_type in op_types(c) and reason(c) is None]
    assert bool(cases) == (op_type not in NONE_LEFT)
    problems = {case.name: why for case in cases if (why := problem(case)) is not None}
    assert problems == {}


@pytest.mark.parametrize("pattern", EXCLUDED)
def test_exclusions_are_needed(pattern: str) -> None:
    """Each excluded case really is refused or differs; a pattern that matches nothing is out of date."""
    cases = [c for c in suite() if is_covered(c) and re.fullmatch(pattern, c.name)]
    assert cases
    unneeded = [case.name for case in cases if problem(case) is None]
    assert unneeded == []

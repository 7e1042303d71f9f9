"""NonMaxSuppression from ONNX to the machine: overlaps at the limit, rows after the last, refusals."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from compiling import to_program, to_tpu
from onnx.reference import ReferenceEvaluator
from op_row import network, node

import tpusim.backend
from tpusim.errors import TpusimError, UnsupportedError
from tpusim.frontend import import_onnx
from tpusim.inference import run
from tpusim.ir.attrs import op_name
from tpusim.simulator import simulate

Array = np.ndarray
BOXES, CLASSES, MOST = 24, 3, 14


def whole_boxes() -> tuple[Array, Array]:
    """Whole corners and eighths as scores: overlaps at the limit, equal scores, boxes without area."""
    r = np.random.default_rng(5)
    low = r.integers(0, 2, (2, BOXES, 2))
    high = low + r.integers(1, 4, low.shape) * (np.arange(BOXES)[:, None] % 8 > 0)
    return np.concatenate([low, high], -1).astype(np.float32), (r.integers(1, 9, (2, CLASSES, BOXES)) / 8).astype("f4")


FORMS: dict[str, Callable[[Array], Array]] = {
    "corners": lambda b: b,
    "other-corners": lambda b: b[..., [2, 1, 0, 3]],
    "center": lambda b: np.concatenate([(b[..., :2] + b[..., 2:]) / 2, b[..., 2:] - b[..., :2]], -1),
}


def suppression(
    most: int | None = MOST, center: int = 0, iou: float = 0.5, score: float | None = 0.25
) -> onnx.ModelProto:
    """Of negated boxes and scores, so that it is not all of the network."""
    weights = {"iou": np.array([iou], np.float32)}
    weights |= {} if most is None else {"most": np.array([most])}
    weights |= {} if score is None else {"score": np.array([score], np.float32)}
    inputs = " ".join(("b s", "-" if most is None else "most", "iou", *([] if score is None else ["score"])))
    nodes = [node("Neg", "boxes", "b"), node("Neg", "scores", "s"),
             node("NonMaxSuppression", inputs, center_point_box=center)]  # fmt: skip
    return network(nodes, weights, 17, onnx.TensorProto.INT64)({"boxes": (2, BOXES, 4), "scores": (2, CLASSES, BOXES)})


def feeds(form: str = "corners") -> dict[str, Array]:
    boxes, scores = whole_boxes()
    return {"boxes": -FORMS[form](boxes), "scores": -scores}


@pytest.mark.parametrize("form", FORMS)
def test_rows_are_those_of_onnx(form: str) -> None:
    """In the order of the scores, of equal ones the first; a box whose overlap is the limit itself is kept."""
    proto, given = suppression(center=int(form == "center")), feeds(form)
    (wanted,) = ReferenceEvaluator(proto).run(None, given)
    (found,) = tpusim.backend.run_model(proto, list(given.values()))
    assert found.dtype == np.int64 and 0 < len(found) < 2 * CLASSES * MOST
    assert np.array_equal(found, wanted)


@pytest.mark.parametrize(
    ("chip", "mode"), [("bm1684x", "f16"), ("bm1688", "f32"), ("bm1684", "f32"), ("bm1690", "bf16")]
)
def test_rows_behind_the_last_are_minus_one_on_the_machine_too(chip: str, mode: str) -> None:
    """The numbers are exact in 16 bits, so every type gives the rows of f32."""
    proto, given = suppression(), feeds()
    (wanted,) = ReferenceEvaluator(proto).run(None, given)
    tpu = to_tpu(import_onnx(proto), chip, mode)
    flat = next(v for name, v in run(tpu, given).items() if name.startswith("y"))
    program = to_program(tpu)
    machine = next(v for name, v in simulate(program, given).tensors.items() if name.startswith("y"))
    assert flat.shape == (2 * CLASSES * MOST, 3)
    assert np.array_equal(flat[: len(wanted)], wanted) and np.all(flat[len(wanted) :] == -1)
    assert np.array_equal(machine, flat)


def test_without_a_score_threshold_negative_scores_count() -> None:
    """As in ONNX; the real converter uses 0."""
    proto, given = suppression(score=None, iou=1.0), feeds()
    given["scores"] = -given["scores"]
    (found,) = tpusim.backend.run_model(proto, list(given.values()))
    assert len(found) == 2 * CLASSES * MOST


def test_no_box_is_no_row() -> None:
    (found,) = tpusim.backend.run_model(suppression(score=2.0), list(feeds().values()))
    assert found.shape == (0, 3)


def test_what_is_behind_it_sees_rows_of_minus_one() -> None:
    """Boxes looked up by the third column: the rows after the last give the last box."""
    proto = suppression()
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array(2), "third"))
    proto.graph.node.append(node("Gather", "y third", "number", axis=1))
    del proto.graph.output[:]
    proto.graph.output.append(onnx.helper.make_tensor_value_info("number", onnx.TensorProto.INT64, ["n"]))
    (wanted,) = ReferenceEvaluator(proto).run(None, feeds())
    (found,) = tpusim.backend.run_model(proto, list(feeds().values()))
    assert np.array_equal(found[: len(wanted)], wanted) and np.all(found[len(wanted) :] == -1)


@pytest.mark.parametrize(
    ("proto", "words"),
    [
        (suppression(most=None), "max_output_boxes_per_class is required"),
        (suppression(most=0), "max_output_boxes_per_class of 1 or more is required, got 0"),
        (suppression(iou=1.5), r"an iou_threshold in \[0, 1\] is required, got 1.5"),
    ],
)
def test_what_cannot_be_taken(proto: onnx.ModelProto, words: str) -> None:
    with pytest.raises(TpusimError, match=words):
        import_onnx(proto)


@pytest.mark.parametrize("chip", ["cv183x", "cv180x"])
def test_a_chip_without_it_says_where_to_cut(chip: str) -> None:
    top = import_onnx(suppression())
    told = r"top.Nms 'y.*': this chip has no .*outputs=\.\.\. and compute it afterwards"
    with pytest.raises(UnsupportedError, match=told):
        to_tpu(top, chip, "bf16")


def test_the_fidelity_card_names_the_decision() -> None:
    tpu = to_tpu(import_onnx(suppression()), "bm1684x", "f32")
    (found,) = [op for op in tpu.ops if op.name == "tpu.Nms"]
    assert "DN-33" in str(found.attributes), op_name(found)

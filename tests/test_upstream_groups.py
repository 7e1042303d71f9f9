"""Files about layer groups that the real TPU-MLIR 1.30.2 wrote for networks of our own: `--force` does what they say.

`sliced` is four convolutions on a batch of four; its groups and sections are not those that the search finds here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
from compiling import to_calibrated, to_canonical, to_groups, to_reordered
from end_to_end import DIGITS, floats, node, report_of
from onnx import TensorProto, helper, numpy_helper

import tpusim
from tpusim.calibration.table import read_table
from tpusim.cli import main
from tpusim.cli.options import GroupingOptions, LoweringOptions, network_of
from tpusim.errors import CapacityError, ConfigError
from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model, load_model
from tpusim.layer_group import (
    Counts,
    ForcedGroup,
    GlobalView,
    GroupView,
    LayerGroupConfig,
    read_forced,
    views,
)
from tpusim.layer_group.files import Forced
from tpusim.ops import context
from tpusim.ops.framework.base import TpuOp
from tpusim.ops.framework.logical import AXES

FILES = Path(__file__).parent / "upstream" / "layer_groups"
CACHES = sorted(path.name.removesuffix("_int8.layer_group_cache.json") for path in FILES.glob("*cache.json"))


def cached(name: str) -> Path:
    return FILES / f"{name}_int8.layer_group_cache.json"


def sliced() -> onnx.ModelProto:
    """Names, shapes and ops are those of the network that was compiled; weights decide nothing about groups."""
    channels, nodes, weights = [3, 16, 24, 16, 8], list[onnx.NodeProto](), dict[str, np.ndarray]()
    source = "data"
    for i in range(4):
        weights[f"w{i}"], weights[f"b{i}"] = floats(channels[i + 1], channels[i], 3, 3, seed=i), floats(channels[i + 1])
        nodes.append(node("Conv", f"{source} w{i} b{i}", f"c{i}", kernel_shape=[3, 3], pads=[1] * 4))
        nodes.append(node("Relu", f"c{i}", source := f"r{i}"))
    weights["fc"] = floats(8, 10)
    nodes += [
        node("GlobalAveragePool", "r3", "pool"),
        node("Flatten", "pool", "flat"),
        node("MatMul", "flat fc", "logits"),
    ]
    data, logits = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("data", [4, 3, 96, 80]), ("logits", [4, 10]))
    )
    constants = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "sliced", [data], [logits], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


@pytest.fixture(scope="module")
def lowered(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Model]:
    """The module of a cache's network and chip, as `tpusim group` divides it."""
    top = to_canonical(tpusim.load(DIGITS / "digits.onnx"))
    calibrated = to_calibrated(top, read_table(FILES / "digits_cali_table"))
    path = tmp_path_factory.mktemp("sliced") / "sliced.onnx"
    onnx.save(sliced(), path)

    @cache
    def found(name: str) -> Model:
        network, chip = name.split("_")
        if network == "digits":
            return to_reordered(calibrated, chip)
        return to_reordered(network_of(path, (LoweringOptions(chip=chip),), assume=True).tpu)

    return found


def shown(model: Model) -> tuple[dict[frozenset[str], list[int]], set[str]]:
    """(ops of each group: its sections, global layers and views)."""
    found = list(views(model))
    groups = [view for view in found if isinstance(view, GroupView)]
    return (
        {frozenset(name for name, _ in view.ops): [view.sections[axis] for axis in AXES] for view in groups},
        {view.name for view in found if not isinstance(view, GroupView)},
    )


def said(name: str) -> tuple[dict[frozenset[str], list[int]], set[str]]:
    """The same of the file, read here again; BM1684's casts are two ops there."""
    content = json.loads(cached(name).read_text())
    functions = [content[f"subfunc_{i}"] for i in range(content["total subfunc"])]
    groups = {
        frozenset(loc for loc in group["locs"] if not loc.endswith(("_mul_scale", "_new_cast"))): group["shape_secs"]
        for function in functions
        for group in function["GroupLayer"]
    }
    return groups, {layer["loc"] for function in functions for layer in function["GlobalLayer"]} - {"func.return"}


@pytest.mark.parametrize("name", CACHES)
def test_a_real_cache_is_done_exactly(name: str, lowered: Callable[[str], Model]) -> None:
    """Its groups with their sections; its global layers stay global; what it has for our ops is everything."""
    model, (groups, layers) = lowered(name), said(name)
    ops = {op_name(op) for op in model.ops if isinstance(op, TpuOp)}
    found = shown(to_groups(model, force=read_forced(cached(name)).groups))
    assert found == (groups, layers & ops) and groups
    assert layers - ops <= {name for name in layers if "pool_" in name}, "only the parts of a cut pool are not ours"


def test_the_cache_decides_and_not_the_search(lowered: Callable[[str], Model]) -> None:
    name = "sliced_bm1684x"
    assert shown(to_groups(lowered(name)))[0] != said(name)[0]


def test_the_command_takes_it_and_the_program_runs(tmp_path: Path) -> None:
    """The machine computes in the forced groups what flat inference does."""
    given = {"--table": FILES / "digits_cali_table", "--data": DIGITS / "calibration.npz"}
    given |= {"--force": cached("digits_bm1684x"), "--out": tmp_path}
    words = [str(word) for pair in given.items() for word in pair]
    assert main(["run", str(DIGITS / "digits.onnx"), *words]) == 0
    assert shown(load_model(tmp_path / "5_grouped.mlir", context()))[0] == said("digits_bm1684x")[0]
    assert report_of(tmp_path)["compare"]["local_vs_tpu"]["bit_exact"]


def test_the_configuration_is_that_of_the_search(tmp_path: Path) -> None:
    """Strategies 1 and 2 of the real compiler search better sections, 0 takes the first that fit."""
    real = FILES / "digits_bm1684x_int8.layer_group_config.json"
    assert read_forced(real) == Forced(())
    for strategy, better in ((0, False), (1, True), (2, True)):
        path = tmp_path / f"{strategy}.json"
        path.write_text(json.dumps({**json.loads(real.read_text()), "shape_secs_search_strategy": strategy}))
        assert read_forced(path) == Forced((), better)
        config = GroupingOptions(force=path).config()
        assert (config.shape_secs_search_strategy, config.force) == ("1" if better else "0", ())
    with pytest.raises(ConfigError, match="--shape-secs-search-strategy 1: needs --layer-group 2"):
        GroupingOptions("1", force=path).config()


def changed(name: str, old: str, new: str, folder: Path) -> Path:
    text = cached(name).read_text()
    assert old in text
    path = folder / "changed.json"
    path.write_text(text.replace(old, new))
    return path


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"half_MaxPool"', '"another"', "rule op-name: the module has no op 'another'"),
        ('"half_MaxPool",', "", "rule consecutive: 'half_MaxPool' stands between its 12 ops"),
        ('"loc": "logits_Gemm"', '"loc": "stem_Relu"', "ops, 'stem_Relu' first, are in group"),
        ('"shape_secs": [\n          1', '"shape_secs": [\n          3', "rule n-sections: at most 1 section"),
        ('"locs"', '"names"', "missing required field `locs`"),
        ('"GroupLayer"', '"Groups"', "missing required field `GroupLayer`"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(
    old: str, new: str, says: str, lowered: Callable[[str], Model], tmp_path: Path
) -> None:
    path = changed("digits_bm1684x", old, new, tmp_path)
    with pytest.raises((ConfigError, CapacityError), match=re.escape(says)):
        to_groups(lowered("digits_bm1684x"), force=read_forced(path).groups)


def test_a_global_layer_is_pinned_by_hand_too(lowered: Callable[[str], Model]) -> None:
    model = lowered("digits_bm1684x")

    def forced(*items: ForcedGroup) -> Model:
        return to_groups(model, force=items)

    one = ForcedGroup("half_MaxPool", "half_MaxPool", "GLOBAL")
    (view,) = [view for view in views(forced(one)) if isinstance(view, GlobalView) and view.name == one.first]
    assert view.reason == "pinned as a global layer" and view.index is not None
    for item, says in (
        (ForcedGroup("stem_Relu", "block_a_Relu", "GLOBAL"), "rule type: a global layer is one op without sections"),
        (ForcedGroup("stem_Relu", "stem_Relu", "GLOBAL", Counts(h=2)), "rule type: a global layer is one op"),
        (ForcedGroup("no_such", "no_such", "GLOBAL"), "rule op-name: the module has no op 'no_such'"),
    ):
        with pytest.raises(ConfigError, match=says):
            forced(item)
    with pytest.raises(ConfigError, match="rule overlap"):
        forced(one, ForcedGroup("stem_Relu", "half_MaxPool"))


CUT = ForcedGroup("stem_Relu", "block_a_Relu", sections=Counts(h=2))
POOL = ForcedGroup("half_MaxPool", "half_MaxPool", "GLOBAL")
TAIL = ForcedGroup("mix_Relu", "quarter_AveragePool")
LONE = ForcedGroup("block_Relu", "block_Relu", sections=Counts())


@pytest.mark.parametrize("forced", [(CUT,), (POOL,), (TAIL,), (CUT, POOL, TAIL), (LONE, POOL)])
@pytest.mark.parametrize("opt", ["1", "2", "best"])
def test_every_strategy_leaves_what_is_forced(
    opt: str, forced: tuple[ForcedGroup, ...], lowered: Callable[[str], Model]
) -> None:
    """Also the option that moves transfers once the groups are known."""
    groups, layers = shown(to_groups(lowered("digits_bm1684x"), LayerGroupConfig(opt, forced)))
    for item in forced:
        if item.type == "GLOBAL":
            assert item.first in layers
        else:
            assert frozenset({item.first, item.last}) in groups
    assert CUT not in forced or groups[frozenset({CUT.first, CUT.last})] == [1, 1, 1, 2, 1]


def test_best_leaves_a_cache(lowered: Callable[[str], Model]) -> None:
    name = "sliced_bm1684x"
    config = LayerGroupConfig("best", read_forced(cached(name)).groups)
    assert shown(to_groups(lowered(name), config))[0] == said(name)[0]

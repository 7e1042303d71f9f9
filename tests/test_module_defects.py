"""What modules may be: shapes that are known, and groups that the whole-graph executor opens."""

import numpy as np
import pytest
from compiling import to_groups
from networks import Network, reordered

from tpusim.errors import ImportModelError
from tpusim.inference import Graph, run
from tpusim.ir.text import parse_module
from tpusim.ops import context
from tpusim.ops.structure import TpuGroup

DYNAMIC = """"builtin.module"() ({{
  "func.func"() <{{sym_name = "main", function_type = (tensor<{argument}xf32>) -> tensor<{result}xf32>}}> ({{
  ^bb0(%arg0: tensor<{argument}xf32>):
    %x = "top.Input"(%arg0) : (tensor<{argument}xf32>) -> tensor<{result}xf32>
    "func.return"(%x) : (tensor<{result}xf32>) -> ()
  }}) : () -> ()
}}) : () -> ()
"""


@pytest.mark.parametrize(
    ("argument", "result", "named"), [("?x4", "?x4", "func.func"), ("2x4", "2x?", r"top.Input 'x'")]
)
def test_an_unknown_extent_is_refused(argument: str, result: str, named: str) -> None:
    with pytest.raises(ImportModelError, match=rf"{named} requires tensors of known extents, got tensor<.*\?"):
        parse_module(DYNAMIC.format(argument=argument, result=result), context())


@pytest.mark.parametrize("keep", [None, "all"])
def test_a_grouped_module_runs_as_one_graph(keep: str | None) -> None:
    net = Network(np.random.default_rng(0))
    x = net.conv(net.input((1, 3, 12, 10)), 10)
    net.pool(net.relu(x))
    model = reordered(net.top(), "bm1684x")
    grouped = to_groups(model)
    assert any(isinstance(op, TpuGroup) for op in grouped.ops)
    flat, found = run(model, net.feeds()), Graph(grouped, keep)(net.feeds())
    assert found and all(array.tobytes() == flat[name].tobytes() for name, array in found.items())

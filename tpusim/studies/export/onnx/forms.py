"""How ops of the top dialect are written as ONNX nodes: functions of the op and the graph that give its result."""

from collections.abc import Callable
from typing import TypeVar

from xdsl.ir import Operation

from tpusim.registry import ONNX_FORMS
from tpusim.studies.export.forms import Forms
from tpusim.studies.export.onnx.graph import Nodes, Tensor

OpT = TypeVar("OpT", bound=Operation)
Form = Callable[[OpT, Nodes], Tensor]

FORMS = Forms("ONNX nodes", ONNX_FORMS)
writes = FORMS.writes
form_of = FORMS.of

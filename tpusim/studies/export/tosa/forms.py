"""How ops of the top and tpu dialects are written in TOSA: functions of the op and the writer that give its result."""

from collections.abc import Callable
from typing import TypeVar

from xdsl.ir import Operation

from tpusim.registry import TOSA_FORMS
from tpusim.studies.export.forms import Forms
from tpusim.studies.export.tosa.graph import Tensor
from tpusim.studies.export.tosa.walk import Writer

OpT = TypeVar("OpT", bound=Operation)
Form = Callable[[OpT, Writer], Tensor]

FORMS = Forms("TOSA", TOSA_FORMS)
writes = FORMS.writes

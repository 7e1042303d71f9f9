"""A module compiled and run by IREE from TOSA: IREE's other way in, next to StableHLO."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tpusim.inference.executor import check_inputs
from tpusim.inference.iree import Compiled
from tpusim.studies.export.tosa.export import as_stored, given_dtype, to_tosa
from tpusim.studies.export.tosa.graph import as_given

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tpusim.ir.module import Model


class IreeOfTosa:
    """The whole network as one function of IREE. Args: the module; the tensors to return, as of `Graph`.

    Raises ConfigError without the packages of the extra `iree`, UnsupportedError for what TOSA or IREE refuses.
    """

    def __init__(self, model: Model, keep: Sequence[str] | str | None = None) -> None:
        self._model, self._found = model, to_tosa(model, keep)
        self._main = Compiled(self._found.bytecode, "tosa", "iree-tosa")

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """One sample: the kept tensors by name. Raises ConfigError for inputs that do not fit."""
        results = self._found.results
        arguments = [as_given(array) for array in check_inputs(self._model, inputs)]
        made = self._main(arguments, [given_dtype(port.dtype) for port in results])
        return {port.name: as_stored(y, port) for port, y in zip(results, made, strict=True)}

"""How inputs are made of images, as a pass."""

from dataclasses import dataclass

from typing_extensions import override

from tpusim.images import Preprocess, with_preprocess
from tpusim.ir.module import Model, State
from tpusim.passes.base import Pass
from tpusim.passes.context import PassContext


@dataclass(frozen=True)
class SetPreprocess(Preprocess, Pass):
    """State on inputs how they are made of images; lowering fuses it into the module with `fuse_preprocess`.

    inputs: which, by number from 1, (): all. The other options are those of preprocessing.
    """

    name = "set-preprocess"
    requires = frozenset({State.TOP})
    inputs: tuple[int, ...] = ()

    @override
    def rewrite(self, model: Model, ctx: PassContext) -> Model:
        return with_preprocess(model, self, self.inputs)

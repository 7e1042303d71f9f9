"""The `Target` of the family, to which the files of this room attach their models."""

from tpusim.interfaces import Target
from tpusim.targets.bm1684x import TARGET as BM1684X

TARGET = Target("bm1690", extends=BM1684X)

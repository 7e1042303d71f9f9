"""The `Target` of the family, to which the files of this room attach their models."""

from tpusim.interfaces import Target
from tpusim.targets.shared import SHARED

TARGET = Target("bm1684", extends=SHARED)

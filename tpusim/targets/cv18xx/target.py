"""The `Target` of the family, to which the files of this room attach their models."""

from tpusim.interfaces import Target
from tpusim.targets.shared import SHARED

TARGET = Target("cv18xx", extends=SHARED)

"""The `Target` of the family, to which the files of this room attach their models."""

from tpusim.interfaces import Target

TARGET = Target("bm1684")

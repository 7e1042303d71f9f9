"""The 1684X family, the reference: BM1684X, BM1688 and CV186x differ in data only."""

from tpusim.interfaces import Target

TARGET = Target("bm1684x")

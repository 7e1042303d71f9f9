"""`tpusim.ops.framework.builder`, under its former name."""

from tpusim.moved import forward

forward(__name__, "tpusim.ops.framework.builder")

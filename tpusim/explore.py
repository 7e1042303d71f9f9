"""`tpusim.studies.explore`, under its former name."""

from tpusim.moved import forward

forward(__name__, "tpusim.studies.explore", "run", "row", "space", "whatif")

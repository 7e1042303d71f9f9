"""`tpusim.studies.diagnosis`, under its former name."""

from tpusim.moved import forward

forward(__name__, "tpusim.studies.diagnosis", "bisect", "causes", "losses")

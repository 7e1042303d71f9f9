"""The version of tpusim."""

__version__ = "0.2.0"

"""The version of tpusim."""

__version__ = "0.1.0"

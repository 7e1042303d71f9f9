"""Fits the constants of tpusim.compat.fitted again, from profiles that TPU-MLIR wrote (tests/upstream/profiles.py)."""

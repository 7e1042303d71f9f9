"""Differential fuzzing against TPU-MLIR: random networks and exporters' idioms through both tools, cell by cell."""

"""Stage 3, `calibration`: top module + samples -> calibration table -> calibrated types on the top module.

Input: a float top module and samples (an `.npz`, a folder, or `random:N`).
Output: a calibration table, text of `name threshold min max` lines that TPU-MLIR reads and writes too.

* `samples.py` reads samples in exactly the model's shapes; another shape is an error and is never reshaped to fit.
* `statistics.py` keeps minimum, maximum and a histogram of absolute values per tensor, one sample at a time, so that
  memory does not grow with the number of samples.
* `thresholds.py` turns the statistics of a tensor into its table entry (`kl`, `max`), in f32 (U-63).
* `table.py` reads and writes the table.

Invariants: the same samples in the same order give the same table; a table is data, read with a strict grammar and
never evaluated; an entry is always finite. Writing and reading back keeps a table: `calibrate` rounds to the
decimals printed, from which constants are compiled.

Must not (these files): know an op or the IR; decide scales or storage types, which `lowering` does.
"""

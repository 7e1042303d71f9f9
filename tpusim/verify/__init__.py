"""Stage 10, `verify`: tensors x tensors -> a verdict per tensor, a comparison, a report.

Input: two mappings of tensor name to array (npz files, or the executors' results), a tolerance.
Output: `compare.Comparison`, `report.Report`; on disk `report.json`.

* `compare.py` and `similarity.py` are the rule of TPU-MLIR's `npz_tool.py compare` (interface.md 6.2), quirks included:
  the same tensors get the same verdict. Two things differ: all common names are compared (DI-06), and the tensors that
  are not compared are listed.
* `tolerances.py` has the default tolerances as data, `npz.py` reads and writes tensor files, `render.py` prints to
  the terminal, `report.py` builds the report.

Invariants: inputs are never modified; results are frozen; "bit exact" means equality of dtype, shape and bits and
nothing else. Comparing nothing is not a success: the verdict is NOTHING COMPARED, and a report with such a comparison
fails.

Must not: know an op, a chip or a stage; import JAX, or any tpusim module except the few that all rooms may import;
print outside `render.py`.
"""

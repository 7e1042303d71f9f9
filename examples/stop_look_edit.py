"""Stop after a stage, edit its text and continue: change one requant multiplier and see which tensors change.

Run: python examples/stop_look_edit.py
"""

import tempfile
from pathlib import Path

import numpy as np

import tpusim
from tpusim.calibration.stage import CalibrationConfig
from tpusim.ir.module import save_model
from tpusim.lowering import LoweringConfig
from tpusim.passes import PassContext, PassManager
from tpusim.passes.pipelines import calibrated, canonical, lowered

HERE = Path(__file__).parent / "digits"


def main() -> None:
    """Lower digits, write the tpu module, halve one multiplier in the text, run both."""
    images = np.load(HERE / "calibration.npz")["image"]
    samples = [{"image": image[None]} for image in images[:20]]
    steps = (*canonical(), *calibrated(config=CalibrationConfig("max")), *lowered(LoweringConfig("bm1684x", "int8")))
    tpu = PassManager(steps).run(tpusim.load(HERE / "digits.onnx"), PassContext(samples=samples))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "4_tpu.mlir"
        save_model(tpu, path, weight_file="weights.npz")
        text = path.read_text()
        line = next(s for s in text.splitlines() if "tpu.Conv2D" in s)
        first = line.split("multiplier = [")[1].split(" ")[0]
        edited = line.replace(f"multiplier = [{first} ", f"multiplier = [{int(first) // 2} ", 1)
        path.write_text(text.replace(line, edited))
        changed = tpusim.load(path)
        before, after = tpusim.infer(tpu, samples[0]), tpusim.infer(changed, samples[0])
    moved = [name for name in before if not np.array_equal(before[name], after[name])]
    print(f"halved the first multiplier of {line.split('loc(')[-1]} changed tensors: {', '.join(moved)}")


if __name__ == "__main__":
    main()

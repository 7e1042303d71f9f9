"""The Python API in 30 lines: compile the digits network, run it on the local-memory machine, compare with flat INT8.

Run: python examples/compile_and_simulate.py
"""

from pathlib import Path

import numpy as np

import tpusim

HERE = Path(__file__).parent / "digits"


def main() -> None:
    """Compile for two chips and print the machine's results."""
    images = np.load(HERE / "calibration.npz")["image"]
    samples = [{"image": image[None]} for image in images[:50]]
    for chip in ("bm1684x", "bm1684"):
        network = tpusim.compile(HERE / "digits.onnx", samples, chip=chip, mode="int8")
        program, result = network.program, network.machine().run(samples[0])
        digit = int(result.tensors["logits_Gemm_f32"].argmax())
        print(
            f"{chip}: {len(program.commands)} commands, {len(program.groups)} groups, digit {digit}, "
            f"{result.timeline.cycles:,} cycles"
        )


if __name__ == "__main__":
    main()

"""python -m benchmarks.groups.through FOLDER: ten networks on TPU-MLIR's tools, in the results of docs/groups.md.

The variable TPUSIM_UPSTREAM names the environment with TPU-MLIR. Networks, bmodels and computed points are kept in the
folder; a run that was stopped goes on. Thresholds are the maxima of two random samples: costs depend on shapes only,
and results are compared element by element whatever they mean.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import tyro
from msgspec.structs import replace

from benchmarks.explore.networks import Net, yolo
from benchmarks.groups.measure import DIGITS
from benchmarks.groups.page import groups_page
from benchmarks.groups.results import PAGE, read, write
from tpusim import zoo
from tpusim.calibration.stage import CalibrationConfig
from tpusim.studies.explore import Row, Space, explore
from tpusim.studies.upstream.tools import AUTO

ZOO = "squeezenet", "shufflenet", "inception_v2", "resnet50"
CHIPS, STRATEGIES = ("bm1684x", "bm1688"), ("2", "best")


def unet() -> onnx.ModelProto:
    """A U-Net (Ronneberger et al. 2015) at 256 x 256: two 3 x 3 convolutions on each level, transposed ones up."""
    net, widths, skips, x, inputs = Net(), (16, 32, 64, 128, 256), list[str](), "image", 3

    def twice(x: str, inputs: int, outputs: int) -> str:
        x = net("Relu", net.conv(x, inputs, outputs, 3))
        return net("Relu", net.conv(x, outputs, outputs, 3))

    for width in widths:
        x = twice(x, inputs, width)
        if width != widths[-1]:
            skips.append(x)
            x = net("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
        inputs = width
    for width in reversed(widths[:-1]):
        filters = net.rng.standard_normal((inputs, width, 2, 2)) / inputs**0.5
        x = net("ConvTranspose", x, filters, net.rng.standard_normal(width) * 0.1, kernel_shape=[2, 2], strides=[2, 2])
        x, inputs = twice(net("Concat", skips.pop(), x, axis=1), 2 * width, width), width
    return net.model("unet", 256, net.conv(x, inputs, 2))


def mobile() -> onnx.ModelProto:
    """Inverted residuals with depthwise convolutions, as MobileNetV2 has, in a short network at 96 x 96."""
    net = Net()
    x, channels = net("Clip", net.conv("image", 3, 16, 3, 2), 0.0, 6.0), 16
    for outputs, stride in ((16, 1), (24, 2), (24, 1), (48, 2), (48, 1)):
        wide = 4 * channels
        y = net("Clip", net.conv(x, channels, wide), 0.0, 6.0)
        y = net("Clip", net.conv(y, wide, wide, 3, stride, wide), 0.0, 6.0)
        y = net.conv(y, wide, outputs)
        x, channels = net("Add", x, y) if stride == 1 and channels == outputs else y, outputs
    return net.model("mobile", 96, net.linear(net("Flatten", net("GlobalAveragePool", x)), channels, 100))


def dense() -> onnx.ModelProto:
    """Two dense blocks with a transition, as DenseNet has, in a short network at 96 x 96."""
    net = Net()
    x, channels = net("Relu", net.conv("image", 3, 32, 3, 2)), 32
    for block in range(2):
        for _ in range(4):
            y = net("Relu", net.conv(net("Relu", net.conv(x, channels, 64)), 64, 16, 3))
            x, channels = net("Concat", x, y, axis=1), channels + 16
        if not block:
            x, channels = net("Relu", net.conv(x, channels, channels // 2)), channels // 2
            x = net("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
    return net.model("dense", 96, net.linear(net("Flatten", net("GlobalAveragePool", x)), channels, 100))


def gated() -> onnx.ModelProto:
    """Residual blocks with squeeze and excitation (Hu et al. 2018) in a short network at 96 x 96."""
    net = Net()
    x, channels = net("Relu", net.conv("image", 3, 32, 3, 2)), 32
    for outputs in (32, 64):
        stride = outputs // channels
        y = net.conv(net("Relu", net.conv(x, channels, outputs, 3, stride)), outputs, outputs, 3)
        gate = net("Relu", net.conv(net("GlobalAveragePool", y), outputs, outputs // 4))
        y = net("Mul", y, net("Sigmoid", net.conv(gate, outputs // 4, outputs)))
        shortcut = x if stride == 1 else net.conv(x, channels, outputs, 1, stride)
        x, channels = net("Relu", net("Add", y, shortcut)), outputs
    return net.model("gated", 96, net.linear(net("Flatten", net("GlobalAveragePool", x)), channels, 100))


NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {
    "digits": lambda: onnx.load(DIGITS),
    **{name: (lambda name=name: zoo.build(name)) for name in ZOO},
    "unet": unet,
    "yolo": yolo,
    "mobile": mobile,
    "dense": dense,
    "gated": gated,
}


def main(out: tyro.conf.Positional[Path], only: tuple[str, ...] = tuple(NETWORKS), upstream: str = AUTO) -> None:
    """Explore, record and write the page. out: folder. only: some of the networks. upstream: as --through-upstream."""
    out.mkdir(parents=True, exist_ok=True)
    found = list[Row]()
    for name in only:
        path = out / f"{name}.onnx"
        if not path.is_file():
            onnx.save(NETWORKS[name](), path)
        space = Space([path], CHIPS, strategies=STRATEGIES, data="random:2", through_upstream=upstream,
                      calibration=CalibrationConfig("max", tune_samples=0))  # fmt: skip
        found += (replace(row, model=name, upstream_file="") for row in explore(space, out / "space").rows)
        print(name, flush=True)
    results = read()
    kept = tuple(row for row in results.through if row.model not in only)
    results = replace(results, through=(*kept, *found))
    write(results)
    PAGE.write_text(groups_page(results), encoding="utf-8")


if __name__ == "__main__":
    tyro.cli(main)

"""Networks as deep as the real ones, with few channels and small images: what the search for groups is tried on.

The depths, kernels, strides and branches are those of the papers and of torchvision; batch norms are folded into the
convolutions, as exporters do.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial

import numpy as np
from networks import Network, Tensor

IMAGE = (1, 3, 32, 32)
CLASSES = 10


def _started(channels: int, k: int) -> tuple[Network, Tensor]:
    """A network with an image and a convolution of stride 2."""
    net = Network(np.random.default_rng(0))
    return net, net.conv(net.input(IMAGE), channels, k, 2)


def _classified(net: Network, x: Tensor) -> Network:
    """Global mean and one row of scores."""
    row = net.flatten(net.global_pool(x))
    net.matmul(row, (row.shape[1], CLASSES))
    return net


def _squeezed(net: Network, x: Tensor, channels: int, gate: str) -> Tensor:
    """Squeeze and excitation: every channel times a number made of all channels' means."""
    means = net.relu(net.conv(net.global_pool(x), channels, 1))
    return net.mul(x, net.function(net.conv(means, x.shape[1], 1), gate))


def _bottleneck(net: Network, x: Tensor, inner: int, outer: int, stride: int = 1) -> Tensor:
    """1x1, 3x3, 1x1 and a parallel shortcut, which is a convolution if the shapes differ."""
    y = net.relu(net.conv(x, inner, 1))
    y = net.conv(net.relu(net.conv(y, inner, 3, stride)), outer, 1)
    same = stride == 1 and x.shape[1] == outer
    return net.relu(net.add(y, x if same else net.conv(x, outer, 1, stride)))


def resnet101() -> Network:
    """ResNet-101 (He et al. 2016): 3 + 4 + 23 + 3 bottlenecks."""
    net, x = _started(8, 7)
    x = net.pool(net.relu(x), k=3, stride=2, pad=1)
    for stage, blocks in enumerate((3, 4, 23, 3)):
        for block in range(blocks):
            x = _bottleneck(net, x, 4 << stage, 16 << stage, 2 if stage and not block else 1)
    return _classified(net, x)


MOBILE = (
    (3, 16, 16, 0, 0, 1), (3, 64, 24, 0, 0, 2), (3, 72, 24, 0, 0, 1), (5, 72, 40, 1, 0, 2), (5, 120, 40, 1, 0, 1),
    (5, 120, 40, 1, 0, 1), (3, 240, 80, 0, 1, 2), (3, 200, 80, 0, 1, 1), (3, 184, 80, 0, 1, 1), (3, 184, 80, 0, 1, 1),
    (3, 480, 112, 1, 1, 1), (3, 672, 112, 1, 1, 1), (5, 672, 160, 1, 1, 2), (5, 960, 160, 1, 1, 1),
    (5, 960, 160, 1, 1, 1),
)  # fmt: skip
"""MobileNetV3-Large's blocks: kernel, expanded and output channels, squeeze, hard swish, stride."""


def mobilenet_v3() -> Network:
    """MobileNetV3-Large (Howard et al. 2019) with an eighth of the channels."""
    net, x = _started(8, 3)
    x = net.hard_swish(x)
    for k, expanded, outer, squeeze, swish, stride in MOBILE:
        x = _inverted(
            net, x, k, expanded // 8, outer // 8, bool(squeeze), net.hard_swish if swish else net.relu, stride
        )
    x = net.hard_swish(net.conv(x, 120, 1))
    row = net.flatten(net.global_pool(x))
    net.matmul(net.hard_swish(net.matmul(row, (120, 160))), (160, CLASSES))
    return net


def _inverted(
    net: Network, x: Tensor, k: int, inner: int, outer: int, squeeze: bool, active: Callable[[Tensor], Tensor],
    stride: int,
) -> Tensor:  # fmt: skip
    """Expand, depthwise, squeeze, project, with a parallel shortcut if the shapes agree."""
    y = x if inner == x.shape[1] else active(net.conv(x, inner, 1))
    y = active(net.conv(y, inner, k, stride, groups=inner))
    if squeeze:
        y = _squeezed(net, y, max(inner // 4, 2), "HardSigmoid")
    y = net.conv(y, outer, 1)
    return net.add(x, y) if stride == 1 and x.shape[1] == outer else y


def regnet() -> Network:
    """RegNetY-400MF (Radosavovic et al. 2020): 1 + 3 + 6 + 6 blocks of grouped convolutions, squeezed."""
    net, x = _started(8, 3)
    x = net.relu(x)
    for depth, width in zip((1, 3, 6, 6), (8, 16, 32, 64), strict=True):
        for block in range(depth):
            x = _grouped(net, x, width, 1 if block else 2)
    return _classified(net, x)


def _grouped(net: Network, x: Tensor, width: int, stride: int) -> Tensor:
    squeezed = max(x.shape[1] // 4, 2)
    y = net.relu(net.conv(x, width, 1))
    y = net.relu(net.conv(y, width, 3, stride, groups=width // 8))
    y = net.conv(_squeezed(net, y, squeezed, "Sigmoid"), width, 1)
    return net.relu(net.add(y, x if stride == 1 else net.conv(x, width, 1, stride)))


def hrnet(modules: Sequence[int] = (1, 4, 3)) -> Network:
    """HRNet-W18 (Wang et al. 2020): 4 bottlenecks, then so many modules on 2, 3 and 4 branches that meet."""
    net, x = _started(8, 3)
    x = net.relu(net.conv(net.relu(x), 8, 3, 2))
    for _ in range(4):
        x = _bottleneck(net, x, 8, 16)
    branches = [net.relu(net.conv(x, 4, 3))]
    for count in modules:
        deepest = branches[-1] if len(branches) > 1 else x
        branches.append(net.relu(net.conv(deepest, 4 << len(branches), 3, 2)))
        for _ in range(count):
            branches = _met(net, [_residuals(net, branch) for branch in branches])
    return _classified(net, _gathered(net, branches))


def _residuals(net: Network, x: Tensor) -> Tensor:
    """Four basic blocks."""
    for _ in range(4):
        inner = net.relu(net.conv(x, x.shape[1], 3))
        x = net.relu(net.add(net.conv(inner, x.shape[1], 3), x))
    return x


def _met(net: Network, branches: Sequence[Tensor]) -> list[Tensor]:
    """Every branch plus all others at its size."""
    found: list[Tensor] = []
    for to in range(len(branches)):
        total = branches[to]
        for at, branch in enumerate(branches):
            if at != to:
                total = net.add(total, _resized(net, branch, at - to, branches[to].shape[1]))
        found.append(net.relu(total))
    return found


def _resized(net: Network, x: Tensor, halvings: int, channels: int) -> Tensor:
    """A branch of as many halvings more than wanted: enlarged, or made smaller by strides (a negative number)."""
    if halvings > 0:
        return net.enlarge(net.conv(x, channels, 1), 2**halvings)
    for _ in range(-halvings - 1):
        x = net.relu(net.conv(x, x.shape[1], 3, 2))
    return net.conv(x, channels, 3, 2)


def _gathered(net: Network, branches: Sequence[Tensor]) -> Tensor:
    """The head: each branch widened, and the finer ones added to the next coarser one."""
    wide = [_bottleneck(net, x, 8 << i, 16 << i) for i, x in enumerate(branches)]
    total = wide[0]
    for x in wide[1:]:
        total = net.add(x, net.relu(net.conv(total, x.shape[1], 3, 2)))
    return net.relu(net.conv(total, 128, 1))


DEEP: dict[str, Callable[[], Network]] = {
    "resnet101": cache(resnet101),
    "mobilenet_v3": cache(mobilenet_v3),
    "regnet": cache(regnet),
    "hrnet": cache(hrnet),
    "hrnet_small": cache(partial(hrnet, (1, 1, 1))),
}
"""By name; hrnet_small has all branches of hrnet, and each module once."""

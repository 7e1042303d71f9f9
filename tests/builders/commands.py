"""Legal commands of every kind, and a program of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import structs
from streams import Builder, gmem, lmem, neuron

from tpusim.isa import functions
from tpusim.isa.commands import (
    Arith,
    ChannelScale,
    Conv,
    Depthwise,
    Dequantize,
    Fill,
    Fn,
    GlobalKernel,
    HostCall,
    LaneCopy,
    Lut,
    MatMul,
    Move,
    MoveRows,
    Pick,
    Pool,
    Quantize,
    Requant,
    Rescale,
    Select,
)
from tpusim.isa.region import View
from tpusim.isa.stream import Program

T = lmem(0, (1, 64, 4, 4))
U = lmem(1024, (1, 64, 4, 4))
F = lmem(0, (1, 64, 4, 4), "f32")


def conv(**more: Any) -> Conv:
    """A legal 3x3 convolution on BM1684X."""
    fields: dict[str, Any] = {
        "input": T,
        "filter": lmem(2048, (1, 64, 1, 576), layout="compact"),
        "output": U,
        "kernel": (3, 3),
        "pads": (1, 1, 1, 1),
        "bias": lmem(8192, (1, 64, 1, 1), "i32", "compact"),
        "requant_table": lmem(8256, (1, 64, 1, 3), "i32", "compact"),
    }
    return Conv(id=1, dep=0, op="conv1", **{**fields, **more})


def make(kind: type[Any], /, **fields: Any) -> Any:
    return kind(**{"id": 1, "dep": 0, "op": "op", **fields})


def global_conv(**more: Any) -> GlobalKernel:
    body = conv(
        input=neuron(0, (1, 64, 4, 4)), output=neuron(4096, (1, 64, 4, 4)), filter=neuron(8192, (1, 64, 1, 576)),
        bias=None, requant_table=None, requant=Requant(),
    )  # fmt: skip
    return make(GlobalKernel, body=structs.replace(body, **more))


def of_host() -> Fn:
    """A function of the host on an image, with code of 99 bytes."""
    code, image = neuron(0, (99,), "u8"), neuron(4096, (1, 64, 4, 4), "f32")
    return make(
        Fn, function=functions.HostFunction("host_0"), inputs=(code, image), output=structs.replace(image, address=8192)
    )


def rows(**changed: View) -> Any:
    """A gather of four of nine rows."""
    views = {"input": neuron(0, (2, 9, 5)), "indices": neuron(256, (4,), "i32"), "output": neuron(512, (2, 4, 5))}
    return make(MoveRows, **(views | changed))


LEGAL: list[Any] = [
    rows(),
    conv(),
    conv(bias=None, requant_table=None, requant=Requant(3, 5, -7), strides=(15, 15), output=lmem(1024, (1, 64, 1, 1))),
    make(
        Depthwise, input=T, filter=lmem(2048, (1, 64, 1, 9), layout="compact"), output=U, kernel=(3, 3), pads=(1,) * 4
    ),
    make(Pool, mode="avg", input=T, output=lmem(1024, (1, 64, 2, 2)), kernel=(2, 2), strides=(2, 2), requant=Requant()),
    make(MatMul, left=lmem(0, (1, 4, 8, 1)), right=lmem(64, (1, 8, 4, 1)), output=lmem(128, (1, 4, 4, 1), "i32")),
    make(MatMul, left=lmem(0, (1, 4, 8, 1)), right=lmem(64, (1, 8, 5, 1), "i4"), output=lmem(128, (1, 4, 5, 1))),
    make(
        Move, input=neuron(3, (1, 8, 5), "u4"), output=neuron(99, (1, 8, 5), "u4", layout="strided", strides=(0, 8, 1))
    ),
    conv(filter=lmem(2048, (1, 64, 1, 576), "i4", "compact")),
    make(Arith, kind="add", a=T, b=lmem(2048, (1, 64, 1, 1)), output=U),
    make(Rescale, input=T, output=U, requant=Requant(1, -128, -32768)),
    make(Quantize, input=F, output=lmem(8192, F.shape), scale=1.0),
    make(Dequantize, input=lmem(8192, F.shape), output=F, scale=1.0),
    make(ChannelScale, input=F, scale=lmem(8192, (1, 64, 1, 1), "f32"), output=F),
    make(Select, input=T, slope=lmem(2048, (1, 64, 1, 1), layout="compact"), rshift=7, output=U),
    make(Select, input=F, slope=0.01, output=F),
    make(Arith, kind="add", a=T, b=lmem(0, T.shape, "u8"), output=T),
    make(
        Lut,
        input=lmem(0, (1, 4, 2, 2), lane=3),
        table=lmem(2048, (1, 1, 1, 256), "u8"),
        output=lmem(1024, (1, 4, 2, 2), "u8", lane=3),
    ),
    make(Pick, input=T, indices=lmem(2048, (1, 64, 1, 2), "i16"), output=lmem(4096, (1, 64, 10, 10))),
    make(LaneCopy, input=lmem(0, (1, 8, 2, 2)), output=lmem(65, (1, 8, 2, 2), layout="compact", lane=60)),
    make(Fn, function=functions.Softmax(1), inputs=(F,), output=F),
    make(Move, input=neuron(3, (1, 64, 4, 4)), output=T),
    make(Move, input=gmem(0, (1, 64, 1, 100), layout="compact", lane_pitch=100), output=lmem(0, (1, 64, 1, 100))),
    make(Fill, output=lmem(7, (1, 1, 3, 3), layout="strided", strides=(0, 0, 9, 2)), value=0),
    global_conv(),
    make(HostCall, body=global_conv().body),
    make(HostCall, body=of_host()),
    global_conv(pads=(20,) * 4, dilations=(16, 16), strides=(16, 16), output=neuron(4096, (1, 64, 1, 1))),
]


def program() -> Program:
    build = Builder()
    x = build.tensor("x", neuron(0, (1, 64, 4, 4)), "input", scale=0.5)
    build.tensor("y", neuron(4096, (1, 64, 4, 4)), "output", shape=(64, 16), parts=("x",))
    build.coefficient(np.arange(100, dtype=np.int8))
    for command in LEGAL:
        build.add(
            type(command), **{k: getattr(command, k) for k in command.__struct_fields__ if k not in ("id", "dep")}
        )
    build.add(Move, input=x, output=T, step="n0", group=3, tensor="x")
    return build.program()

"""What every fitted constant is fitted to: for each recorded number the values at which the model gives it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import gcd
from typing import Any

from msgspec.structs import replace

from benchmarks.constants.networks import Case
from benchmarks.constants.ranges import HALF, Range, scanned, solved
from benchmarks.constants.recorded import Layer, Transfer, recorded
from benchmarks.constants.trial import changed, home, renamed
from tests.upstream.profiled import ACTIVATIONS, SHARED_OUT, SOFTMAXES
from tpusim import chips
from tpusim.chips import ChipSpec
from tpusim.compat import Fitted
from tpusim.isa import functions as fn
from tpusim.isa.commands import Conv, Fn, MatMul, Move, MoveRows, Pool, Quantize, tile_step
from tpusim.isa.cycles import timed_ns
from tpusim.isa.region import DType, View
from tpusim.kernel_library.attention import block_sizes
from tpusim.kernel_library.cut import tiles

Points = Iterator[Sequence[Range] | None]
"""For each recorded number the values that give it; None: the constant does not move it."""
LOAD, STORE, COPY = 0, 1, 2
F32 = 4
NEAR = 0.005
"""How far the cycles of a transfer may be from the model's, of themselves: runs at borders cost a little more."""
_DTYPES: dict[str, DType] = {"f32": "f32", "f16": "f16", "int8": "i8"}


def points(row: Fitted, chip: str = "") -> list[Sequence[Range]]:
    """For each recorded number that the constant moves the values that give it; chip: of a chip's field."""
    return [found for found in _POINTS[row.number](row, chip) if found is not None]


def is_near(row: Fitted) -> bool:
    """Whether the model is near the profile and never exact, so that what most numbers ask for says nothing."""
    return row.number in _NEAR


def is_fitted(row: Fitted) -> bool:
    """Whether recorded profiles fit the constant."""
    return row.number in _POINTS


# ---------------------------------------------------------------------------------------------------------------- views


class _Outside:
    """Tensors in global memory, none over another."""

    def __init__(self) -> None:
        self._next = 0

    def __call__(self, dtype: DType, *shape: int) -> View:
        self._next += 1 << 28
        return View("gmem", self._next, shape, dtype, "dense")


def _inside(dtype: DType, *shape: int) -> View:
    return View("lmem", 0, shape, dtype, "aligned")


def _head(number: int | None = None) -> dict[str, Any]:
    """What every command has; number: of a tile."""
    return {"id": 1, "dep": 0, "op": "op"} | ({} if number is None else {"step": tile_step(number)})


def _cycles(command: Any, chip: ChipSpec) -> float:
    return timed_ns(command, chip) * chip.tiu_mhz / 1000


def _cases(op: str, chip: str = "", mode: str = "") -> Iterator[tuple[Case, dict[str, tuple[Layer, ...]]]]:
    for case, layers in recorded().items():
        if case.op == op and chip in ("", case.chip) and mode in ("", case.mode):
            yield case, layers


def _by_value(row: Fitted, model: Callable[[ChipSpec], float], chip: str) -> Callable[[float], float]:
    """A model of a chip as a function of the constant, which is a field of it or a variable."""

    def of(value: float) -> float:
        if row.chips:
            return model(changed(chip, row.name, value))
        with home(row).having(value):
            return model(renamed(chip, f"{row.name}={value}"))

    return of


def _solved(
    row: Fitted, model: Callable[[ChipSpec], float], chip: str, wanted: float, search: Range, near: float = 0.0
) -> list[Range] | None:
    return solved(_by_value(row, model, chip), wanted, search, max(HALF, near * wanted))


# ---------------------------------------------------------------------------------------------------------------- tiles


def _grid(low: float, high: float, step: float) -> list[float]:
    return [round(low + step * i, 6) for i in range(round((high - low) / step) + 1)]


def _convolution(sizes: Sequence[int]) -> Conv:
    ic, oc, rows, kernel, stride = sizes
    t, out = _Outside(), (rows + 2 * (kernel // 2) - kernel) // stride + 1
    return Conv(
        input=t("f32", 1, ic, rows, rows), filter=t("f32", 1, oc, 1, ic * kernel * kernel),
        bias=t("f32", 1, oc, 1, 1), output=t("f32", 1, oc, out, out), kernel=(kernel, kernel),
        strides=(stride, stride), pads=(kernel // 2,) * 4, **_head(),
    )  # fmt: skip


def _channels(row: Fitted, _: str) -> Points:
    """A tile of a convolution loads its filters, then a bias for each."""
    for case, layers in _cases("conv"):
        body, wanted = _convolution(case.sizes), layers["Conv2D"][0].transfers[1].moved // F32

        def model(chip: ChipSpec, body: Conv = body) -> float:
            return max((piece.body.writes()[0].shape[1] for piece in tiles(body, chip)), default=0)

        yield scanned(_by_value(row, model, case.chip), wanted, _grid(2, 4, row.rounding))


def _cast(sizes: Sequence[int]) -> Quantize:
    t = _Outside()
    return Quantize(input=t("f32", 1, *sizes), output=t("i8", 1, *sizes), scale=20.0, **_head())


def _cast_by_planes(row: Fitted, _: str) -> Points:
    """The first tile of the cast before the transposition."""
    for case, layers in _cases("turn", "bm1688"):
        body, wanted = _cast(case.sizes), layers["Cast"][0].transfers[0].moved // F32

        def model(chip: ChipSpec, body: Quantize = body) -> float:
            return tiles(body, chip)[0].loads[0].outside.elements

        yield scanned(_by_value(row, model, case.chip), wanted, _grid(2, 4, row.rounding / 4))


def _blocks(row: Fitted, _: str) -> Points:
    """The largest number that all tiles but the last of each are multiples of."""
    del row
    found = gcd(*(elements for case in SHARED_OUT for elements in case[-1][:-1]))
    yield [Range(found, found + 1)]


def _heads(row: Fitted, _: str) -> Points:
    """The queries of a tile's heads are its first load."""
    for case, layers in _cases("flash"):
        rows, keys, heads, size = case.sizes
        loaded = layers["FAttention"][0].transfers[0].moved
        block, _, _ = block_sizes(rows, keys, heads, size, chips.load(case.chip))

        def model(chip: ChipSpec, sizes: tuple[int, ...] = case.sizes) -> float:
            rows, keys, heads, size = sizes
            _, _, together = block_sizes(rows, keys, heads, size, chip)
            return together

        yield _solved(row, model, case.chip, loaded / (2 * block * size), Range(1, 40))


def _first_load(body: Any) -> Callable[[ChipSpec], float]:
    """Bytes that the first tile of a global layer loads first; 0 without tiles."""

    def model(chip: ChipSpec) -> float:
        pieces = tiles(body, chip)
        return pieces[0].loads[0].outside.nbytes if pieces else 0

    return model


def _upsampled(row: Fitted, _: str) -> Points:
    for case, layers in _cases("upsample"):
        c, h, w, scale = case.sizes
        t = _Outside()
        views = (t("f32", 1, c, h, w),), t("f32", 1, c, h * scale, w * scale)
        body = Fn(function=fn.Upsample(scale, scale), inputs=views[0], output=views[1], **_head())
        wanted = layers["Upsample"][0].transfers[0].moved
        yield scanned(_by_value(row, _first_load(body), case.chip), wanted, _grid(1, 12, 0.5))


def _planes(row: Fitted, _: str) -> Points:
    for case, layers in _cases("planes"):
        c, *plane = case.sizes
        t = _Outside()
        body = Pool(
            mode="avg", input=t("f32", 1, c, *plane), output=t("f32", 1, c, 1, 1), kernel=tuple(plane), **_head()
        )
        wanted = layers["Pool2D"][0].transfers[0].moved
        yield scanned(_by_value(row, _first_load(body), case.chip), wanted, _grid(1, 12, 0.5))


def _neighbours(row: Fitted, _: str) -> Points:
    """A lane of a softmax along channels has so many elements of every channel's plane."""
    for case, layers in _cases("softmax"):
        c = case.sizes[0]
        t = _Outside()
        view, table = t("i8", 1, *case.sizes), t("f32", 256)
        body = Fn(function=fn.SoftmaxInt(1, 0.01), inputs=(view, table), output=t("i8", 1, *case.sizes), **_head())

        def model(chip: ChipSpec, body: Fn = body) -> float:
            pieces = tiles(body, chip)
            return pieces[0].loads[0].outside.shape[-1] if pieces else 0

        wanted = layers["Softmax"][0].transfers[1].moved // c
        yield scanned(_by_value(row, model, case.chip), wanted, _grid(1, 64, 1))


# ------------------------------------------------------------------------------------------------------------ transfers


def _moved(case: Case, number: int) -> Callable[[ChipSpec], float]:
    """Cycles of the loads of both matrices of an f32 product, and of its store."""
    rows, inner, columns = case.sizes

    def model(chip: ChipSpec) -> float:
        t = _Outside()
        left, right, output = t("f32", rows, inner), t("f32", inner, columns), t("f32", rows, columns)
        piece = tiles(MatMul(left=left, right=right, output=output, **_head()), chip)[0]
        assert piece.store is not None
        each = piece.store if number == STORE + 1 else piece.loads[number]
        ends = (each.inside, each.outside) if number == STORE + 1 else (each.outside, each.inside)
        return _cycles(Move(input=ends[0], output=ends[1], kind=each.kind, width=each.width, **_head()), chip)

    return model


def _matrices(numbers: Sequence[int], search: Range) -> Callable[[Fitted, str], Points]:
    """numbers: 0 and 1 for the loads of the left and the right matrix, 2 for the store."""

    def found(row: Fitted, chip: str) -> Points:
        for case, layers in _cases("matmul", chip):
            transfers = layers["MatMul"][0].transfers
            for number in numbers:
                wanted = transfers[number].cycles
                yield _solved(row, _moved(case, number), case.chip, wanted, search, NEAR)

    return found


def _of_convolution(direction: int, search: Range, near: float = 0.0) -> Callable[[Fitted, str], Points]:
    """The load of a tile's filters, or the store of its planes: each is one run."""

    def found(row: Fitted, chip: str) -> Points:
        for _, layers in _cases("conv", chip):
            transfer = next((t for t in layers["Conv2D"][0].transfers if t.direction == direction), None)
            if transfer is not None:
                yield _solved(row, _one_run(transfer), chip, transfer.cycles, search, near)

    return found


def _one_run(transfer: Transfer) -> Callable[[ChipSpec], float]:
    """Of a tile: one row of f32 in each of 32 lanes."""
    shape = (1, 32, 1, transfer.moved // F32 // 32)
    outside, inside = View("gmem", 0, shape, "f32", "dense"), _inside("f32", *shape)
    ends = (outside, inside) if transfer.direction == LOAD else (inside, outside)

    def model(chip: ChipSpec) -> float:
        return _cycles(Move(input=ends[0], output=ends[1], kind="tensor", **_head()), chip)

    return model


def _copies(row: Fitted, chip: str) -> Points:
    """A Permute whose rows stay is one copy in global memory."""
    for case, layers in _cases("copy", chip):
        c, h, w = case.sizes
        source = View("gmem", 0, (1, h, c, w), "f32", "strided", strides=(c * h * w, w, h * w, 1))
        target = View("gmem", 1 << 28, (1, h, c, w), "f32", "dense")

        def model(chip: ChipSpec, ends: tuple[View, View] = (source, target)) -> float:
            return _cycles(Move(input=ends[0], output=ends[1], **_head()), chip)

        transfer = layers["Permute"][0].transfers[0]
        assert transfer.direction == COPY
        yield _solved(row, model, chip, transfer.cycles, Range(5, 100))


def _gathers(row: Fitted, chip: str) -> Points:
    """The rows; what the load of the indices before them takes is left out."""
    for case, layers in _cases("gather", chip):
        rows, columns, count = case.sizes
        t = _Outside()
        command = MoveRows(
            input=t("f32", 1, rows, columns), indices=t("i32", count), output=t("f32", 1, count, columns), **_head()
        )

        def model(chip: ChipSpec, command: MoveRows = command) -> float:
            return _cycles(command, chip) - _cycles(command, replace(chip, gather_gbs=1e12))

        spec, gathered = chips.load(chip), layers["Gather"][0].transfers[-1]
        assert gathered.direction == COPY
        latency = spec.latency_ns("s2s") * spec.tiu_mhz / 1000
        yield _solved(row, model, chip, gathered.cycles - latency, Range(5, 200))


# ------------------------------------------------------------------------------------------------------------ computing


def _free(chip: ChipSpec) -> ChipSpec:
    """The chip with transfers that take no time, so that only steps are counted."""
    rates = replace(chip.bandwidth, s2l=1e12, l2s=1e12, s2s=1e12, l2l=1e12)
    return replace(
        chip, bandwidth=rates, kernel_gbs=1e12, dma_latency_ns=0.0, store_latency_ns=0.0, local_latency_ns=0.0
    )


def _interpolations(row: Fitted, _: str) -> Points:
    """Of as many channels as lanes at most; weights, which later channels have already, of more."""
    for case, layers in _cases("resize"):
        c, h, w, rows, columns = case.sizes
        if (c > chips.load(case.chip).lanes) != (row.number in _LATER):
            continue
        dtype = _DTYPES[case.mode]
        function = fn.Interp(h / rows, w / columns)
        view, output = _inside(dtype, 1, c, h, w), _inside(dtype, 1, c, rows, columns)
        command = Fn(function=function, inputs=(view,), output=output, **_head())

        def model(chip: ChipSpec, command: Fn = command) -> float:
            return _cycles(command, _free(chip))

        yield _solved(row, model, case.chip, layers["Interp"][0].tiu, Range(0, 2000))


_LATER = ("F-48", "F-49")


def _lrns(row: Fitted, _: str) -> Points:
    for case, layers in _cases("lrn"):
        *shape, size = case.sizes
        view = _inside("f32", 1, *shape)
        command = Fn(function=fn.Lrn(size, 1e-4, 0.75, 1.0), inputs=(view,), output=view, **_head())
        wanted = layers["LRN"][0].tiu
        yield _solved(row, lambda spec, command=command: _cycles(command, spec), case.chip, wanted, Range(-50, 200))


def _softmaxes(row: Fitted, _: str) -> Points:
    for chip, dtype, shape, axis, log, wanted in SOFTMAXES:
        view = _inside(_DTYPES[dtype], *shape)
        command = Fn(function=fn.Softmax(axis, log), inputs=(view,), output=view, **_head())
        yield _solved(row, lambda spec, command=command: _cycles(command, spec), chip, wanted, Range(1, 100))


def _activations(row: Fitted, _: str) -> Points:
    """For each activation the steps by which its entry of the table is wrong."""
    at = home(row)
    view = _inside("f32", 1, 4, 8, 8)
    for mode, wanted in ACTIVATIONS.items():
        command = Fn(function=fn.Active(mode), inputs=(view,), output=view, **_head())

        def model(error: float, command: Fn = command, mode: str = mode) -> float:
            steps = at.value[mode]
            with at.having({**at.value, mode: steps._replace(arithmetic=steps.arithmetic + error)}):
                return _cycles(command, renamed("bm1684x", error))

        yield solved(model, wanted, Range(-100, 100), HALF)


def _along(op: str, function: Callable[[int], fn.Function], dtype: DType = "f32") -> Callable[[Fitted, str], Points]:
    """Points of a function along an axis, over all its tiles."""

    def found(row: Fitted, _: str) -> Points:
        for case, layers in _cases(op):
            axis, *shape = case.sizes
            t, length = _Outside(), shape[axis] if op == "running" else 1
            result = t(dtype, *shape[:axis], length, *shape[axis + 1 :])
            body = Fn(function=function(axis), inputs=(t("f32", *shape),), output=result, **_head())

            def model(chip: ChipSpec, body: Fn = body) -> float:
                return sum(_cycles(piece.body, chip) for piece in tiles(body, chip))

            (layer,) = (layers[kind][0] for kind in ("Arg", "CumSum", "Reduce") if kind in layers)
            yield _solved(row, model, case.chip, layer.tiu, Range(1, 20))

    return found


def _additions(row: Fitted, chip: str) -> Points:
    """Running sums and products along an axis."""
    yield from _along("running", fn.Cumulate)(row, chip)
    yield from _along("product", lambda axis: fn.Reduce("ReduceProd", (axis,)))(row, chip)


_CAST_COMMANDS = {"bm1684x": 3, "bm1688": 2}
"""Commands that the library issues for a tile of a cast: the product, its sum on BM1684X, the conversion."""


def _casts(row: Fitted, chip: str) -> Points:
    """The first tile."""
    for case, layers in _cases("turn", chip):
        body, wanted = _cast(case.sizes), sum(layers["Cast"][0].steps[: _CAST_COMMANDS[chip]])

        def model(chip: ChipSpec, body: Quantize = body) -> float:
            return _cycles(replace(tiles(body, chip)[0].body, step=tile_step(0)), chip)

        yield _solved(row, model, chip, wanted, Range(1, 20), NEAR)


def _windows(row: Fitted, chip: str) -> Points:
    for case, layers in _cases("pool", chip):
        c, h, w, kernel, stride = case.sizes
        dtype, pads = _DTYPES[case.mode], (kernel // 2,) * 4
        out = [(size + 2 * (kernel // 2) - kernel) // stride + 1 for size in (h, w)]
        command = Pool(
            mode="max", input=_inside(dtype, 1, c, h, w), output=_inside(dtype, 1, c, *out), kernel=(kernel, kernel),
            strides=(stride, stride), pads=pads, **_head(),
        )  # fmt: skip
        wanted = layers["Pool2D"][0].tiu
        yield _solved(row, lambda spec, command=command: _cycles(command, spec), chip, wanted, Range(1, 20))


_POINTS: dict[str, Callable[[Fitted, str], Points]] = {
    "F-01": _channels,
    "F-02": _cast_by_planes,
    "F-03": _blocks,
    "F-04": _upsampled,
    "F-05": _planes,
    "F-06": _neighbours,
    "F-08": _along("extreme", lambda axis: fn.Arg(axis, "ArgMax"), "i32"),
    "F-09": _matrices([1], Range(0.5, 30)),
    "F-10": _matrices([1], Range(8, 256)),
    **dict.fromkeys(("F-11", "F-12", "F-13", "F-14"), _interpolations),
    **dict.fromkeys(("F-15", "F-16", "F-17", "F-18", "F-19"), _softmaxes),
    "F-20": _activations,
    **dict.fromkeys(("F-25", "F-26"), _heads),
    "F-29": _casts,
    "F-30": _windows,
    "F-31": _additions,
    "F-32": _of_convolution(LOAD, Range(10, 200), NEAR / 10),
    "F-33": _of_convolution(STORE, Range(10, 200), NEAR / 10),
    "F-34": _copies,
    "F-35": _of_convolution(LOAD, Range(0, 2000)),
    "F-36": _of_convolution(STORE, Range(0, 2000)),
    "F-38": _matrices([0, 1], Range(4, 4096)),
    "F-40": _matrices([0, 1], Range(5, 500)),
    "F-41": _matrices([2], Range(5, 500)),
    "F-42": _gathers,
    "F-45": _lrns,
    **dict.fromkeys(_LATER, _interpolations),
}
"""By number; a row without an entry is fitted by nothing that is recorded."""
_NEAR = {"F-11", "F-12", "F-13", "F-14", "F-45", *_LATER}

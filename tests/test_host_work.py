"""Code of host functions that takes too much time or memory, or reaches something else, is refused before it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from builders.host_code import FEEDS, SHAPE, code_of
from jax import export, lax
from jax.extend.mlir.dialects import stablehlo
from streams import neuron

from tpusim.errors import SimulationError
from tpusim.isa import functions as fn
from tpusim.simulator.host_function import host_function

TYPE = "tensor<1x3x4x5xf32>"
ONE = f"(%x: {TYPE}) -> {TYPE}"


def called(code: bytes) -> np.ndarray:
    given = np.frombuffer(code, np.uint8), FEEDS["x"]
    return host_function(fn.HostFunction("host_0"), given, neuron(0, SHAPE, "f32"))


def of_text(*functions: str) -> bytes:
    """Code of these functions of StableHLO, which says that it takes and gives SHAPE."""
    declared = export.export(jax.jit(lambda x: x), platforms=("cpu",))(jax.ShapeDtypeStruct(SHAPE, np.float32))
    artefact = stablehlo.serialize_portable_artifact_str("\n".join(functions), stablehlo.get_minimum_version())
    return bytes(replace(declared, mlir_module_serialized=artefact).serialize())


def calls(name: str, callee: str, times: int = 1) -> str:
    """A function that calls another one so many times, one after the other."""
    values = ["%x", *(f"%y{number}" for number in range(times))]
    made = "\n".join(
        f"{y} = func.call @{callee}({x}) : ({TYPE}) -> {TYPE}" for x, y in zip(values, values[1:], strict=False)
    )
    return f"func.func @{name}{ONE} {{\n{made}\nreturn {values[-1]} : {TYPE} }}"


def large(x: Any) -> Any:
    """Ten products of 268 MB, which are needed at one time."""
    rows = lax.iota(np.float32, 16_384).reshape(8_192, 2) * x[0, 0, 0, 0]
    made = [rows @ (rows.T + number) for number in range(10)]
    total = sum(map(jnp.sum, made))
    return x + sum(jnp.sum(y * total) for y in made)


def turns(number: int, step: int = 1) -> Callable[[Any], Any]:
    """A loop of sines."""

    def main(x: Any) -> Any:
        first = (np.int32(0), x)
        return lax.while_loop(lambda s: s[0] < number, lambda s: (s[0] + np.int32(step), jnp.sin(s[1])), first)[1]

    return main


def endless(x: Any) -> Any:
    return lax.while_loop(lambda y: jnp.sum(y) < np.inf, lambda y: y * 2, x)


REFUSED: dict[str, Callable[[], bytes]] = {
    "of their operands alone is required, got stablehlo.replica_id": lambda: of_text(
        f"func.func @main{ONE} {{ %i = stablehlo.replica_id : tensor<ui32>\nreturn %x : {TYPE} }}"
    ),
    "loops that count from a number to a number": lambda: code_of(endless, SHAPE),
    "a loop whose turns are not known": lambda: code_of(turns(10, -1), SHAPE),
    "got a loop whose": lambda: code_of(turns(2**31 - 1, 2), SHAPE),
    "work of at most .* steps is required": lambda: code_of(turns(1 << 30), SHAPE),
    "values of at most .* got tensor<2147483648xf32>": lambda: code_of(
        lambda x: x + lax.iota(np.float32, 1 << 31)[3], SHAPE
    ),
    "bytes of memory is required, got 2,": lambda: code_of(large, SHAPE),
    "instructions is required, got more": lambda: of_text(
        calls("main", "f0"),
        *(calls(f"f{n}", f"f{n + 1}", 2) for n in range(40)),
        f"func.func @f40{ONE} {{ return %x : {TYPE} }}",
    ),
    "do not call themselves is required, got one of 'main'": lambda: of_text(calls("main", "f"), calls("f", "main")),
    "functions that are here .* got one of 'main'": lambda: of_text(calls("f", "g"), f"func.func private @g{ONE}"),
    "one of 'g'": lambda: of_text(calls("main", "g"), f"func.func private @g{ONE}"),
    "tensors of fixed shapes is required, got tensor<.x3x4x5xf32>": lambda: of_text(
        f"func.func @main{ONE} {{ %n = stablehlo.constant dense<[1, 3, 4, 5]> : tensor<4xi32>\n%y = "
        f"stablehlo.dynamic_reshape %x, %n : ({TYPE}, tensor<4xi32>) -> tensor<?x3x4x5xf32>\nreturn %x : {TYPE} }}"
    ),
    "code that .* is required": lambda: of_text(
        f"func.func @main(%x: {TYPE}) -> tensor<f32> {{ %c = stablehlo.constant dense<1.0> : tensor<f32>\n"
        "return %c : tensor<f32> }"
    ),
}
"""What is said -> code."""


@pytest.mark.parametrize("words", REFUSED)
def test_code_without_bounds(words: str) -> None:
    code = REFUSED[words]()
    with pytest.raises(SimulationError, match=f"host function 'host_0': .*{words}"):
        called(code)


def test_loops_that_count_run() -> None:
    """A loop that counts up, one down, a nested loop, and a loop that writes into an array in each turn."""

    def down(x: Any) -> Any:
        first = (np.int32(9), x)
        return lax.while_loop(lambda s: s[0] >= 2, lambda s: (s[0] - np.int32(2), s[1] + 1), first)[1]  # noqa: PLR2004

    nested = lambda x: lax.fori_loop(0, 3, lambda i, y: turns(2)(y), x)  # noqa: E731
    rows = lambda x: lax.scan(lambda c, r: (c + r, c), x[0, 0, 0, 0], jnp.ones(100_000))[1][-1] + 0 * x  # noqa: E731
    np.testing.assert_allclose(called(code_of(down, SHAPE)), FEEDS["x"] + 4, rtol=1e-5)
    six = FEEDS["x"]
    for _ in range(6):
        six = np.sin(six)
    np.testing.assert_allclose(called(code_of(nested, SHAPE)), six, rtol=1e-5)
    assert np.isfinite(called(code_of(rows, SHAPE))).all()

"""Small decoders proven, and planted faults looked for.

Each model is compiled for prefill, chunk and decode, and all ways to its tokens are compared on the machine. Then nets
and runtimes with one fault each take the place of right ones. Prints cases and CPU seconds, and where each fault shows;
the status is 1 if a case fails or a fault does not show.
"""

import time
from dataclasses import dataclass
from typing import Any

import tyro
from typing_extensions import override

import tpusim
from tests.builders.decoders import RUNTIMES, SMALL, nets
from tests.builders.llama_block import FAULTS, Sizes, llama_block
from tpusim.compiled_nets import CompiledNets
from tpusim.decoder import Decoder
from tpusim.decoder.prove import Agreement, prove

WIDE = Sizes(hidden=128, heads=6, kv_heads=2, size=32, inner=192, positions=160)
APART = Sizes(hidden=64, heads=4, kv_heads=4, size=16, inner=128, positions=160)
LONG = Sizes(hidden=64, heads=4, kv_heads=2, size=16, inner=128, positions=160)


@dataclass(frozen=True)
class Small:
    """A small decoder."""

    name: str
    options: dict[str, Any]
    capacity: int
    chunk: int
    sizes: Sizes = LONG
    layers: int = 1
    mask: bool = True

    def compiled(self) -> CompiledNets:
        """All of its nets."""
        made: dict[str, Any] = {}
        for layer in range(self.layers):
            made |= nets(self.capacity, self.chunk, self.sizes, layer, mask=self.mask)
        return tpusim.compile_nets(made, **{"high_precision": True, **self.options})


MODELS = (
    Small("f16", {"mode": "f16"}, 16, 4),
    Small("bf16 around the lanes", {"mode": "bf16"}, 66, 16),
    Small("w4bf16 on bm1688", {"mode": "w4bf16", "chip": "bm1688"}, 40, 8),
    Small("w4f16, three heads a key", {"mode": "w4f16"}, 36, 12, WIDE),
    Small("bf16 on bm1690", {"mode": "bf16", "chip": "bm1690"}, 16, 5),
    Small("f16 without high precision", {"mode": "f16", "high_precision": False}, 24, 6),
    Small("bf16 as the interpreter, bm1688", {"mode": "bf16", "chip": "bm1688", "arithmetic": "interpreter"}, 20, 4),
    Small("w8f16, a head of keys each", {"mode": "w8f16"}, 16, 8, APART),
    Small("two layers", {"mode": "f16"}, 12, 4, layers=2),
    Small("f16, masks of --dynamic", {"mode": "f16"}, 24, 8, mask=False),
    Small("bf16, masks of --dynamic, bm1688", {"mode": "bf16", "chip": "bm1688"}, 36, 8, mask=False),
)


def proven(model: Small) -> tuple[Agreement, float]:
    """The cases of a model, and the CPU seconds of its compilation and proof."""
    begin = time.process_time()
    return model.compiled().prove(), time.process_time() - begin


def planted() -> list[tuple[str, Agreement]]:
    """What shows of each fault: of runtimes, of decode nets, and of a triangle."""
    right = Small("right", {"mode": "f16"}, 16, 4, SMALL).compiled()
    found = [(kind.__name__, prove(kind(right.session(), list(right)))) for kind in RUNTIMES]
    for fault in FAULTS:
        wrong = tpusim.compile_nets(
            {"net": llama_block(1, 16, sizes=SMALL, fault=fault)}, mode="f16", high_precision=True
        )
        found.append((f"net: {fault}", CompiledNets({**right, "block_cache_0": wrong["net"]}).prove()))
    dynamic = nets(16, 4, SMALL, mask=False) | {"block_0": llama_block(16, sizes=SMALL, mask=False, fault="triangle")}
    found.append(("net: triangle", tpusim.compile_nets(dynamic, mode="f16", high_precision=True).prove()))
    found.append(
        ("caches of layers exchanged", prove(_Exchanged(Small("", {"mode": "f16"}, 12, 4, layers=2).compiled())))
    )
    return found


class _Exchanged(Decoder):
    """What layer 1 computes goes to the caches of layer 0."""

    def __init__(self, model: CompiledNets) -> None:
        super().__init__(model.session(), list(model))

    @override
    def append(self, cache: str, values: Any, at: int, axis: int) -> None:
        super().append(cache.replace("_1", "_0"), values, at, axis)


def main(models: tuple[str, ...] = (), faults: bool = True) -> None:
    """models: parts of their names, () for all. faults: also look for planted ones."""
    chosen = [model for model in MODELS if not models or any(name in model.name for name in models)]
    cases, seconds, bad = 0, 0.0, 0
    for model in chosen:
        found, took = proven(model)
        said = found.to_json()
        cases, seconds, bad = cases + said["cases"], seconds + took, bad + said["failed"]
        figures = f"{said['cases']} cases, {said['equal']} equal, {said['failed']} wrong, {took:.1f} CPU s"
        print(f"{model.name}: {figures}", flush=True)
        for pair, count in found.apart.most_common(4):
            print(f"    {count} tokens: {pair}")
        for fault in found.faults[:3]:
            print(f"    {fault}")
    print(f"{cases} cases in {seconds:.1f} CPU s, {bad} wrong")
    shown = planted() if faults else []
    for name, found in shown:
        print(f"{name}: {found.faults[0] if found.faults else 'NOT FOUND'}", flush=True)
    seen = sum(bool(found.faults) for _, found in shown)
    print(f"{seen} of {len(shown)} planted faults show")
    if bad or seen < len(shown):
        raise SystemExit(1)


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)

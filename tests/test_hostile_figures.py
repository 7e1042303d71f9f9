"""Figures that nobody thought of: in chips, in modules, in archives and folders of samples."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import numpy as np
import pytest
from compiling import to_reordered

from tpusim import chips
from tpusim.chips.legal import LEGAL
from tpusim.errors import ConfigError, ImportModelError
from tpusim.host import arrays, files
from tpusim.host.files import files_in
from tpusim.inference import run
from tpusim.ir.module import Model
from tpusim.ir.text import parse_module, print_module
from tpusim.ops import context
from tpusim.studies.export.products import products
from tpusim.verify.npz import load_tensors

pytestmark = pytest.mark.every


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "-1.0", "0.0"])
@pytest.mark.parametrize("name", ["tiu_mhz", "dma_mhz", "[bandwidth]\nload"])
def test_rates_of_a_chip_are_finite(tmp_path: Path, name: str, value: str):
    field = next(iter(chips.load("bm1684x").bandwidth.__struct_fields__)) if "[" in name else name
    text = f"[bandwidth]\n{field} = {value}" if "[" in name else f"{name} = {value}"
    (tmp_path / "x.toml").write_text(f'extends = "bm1684x"\n{text}\n')
    with pytest.raises(ConfigError, match="above 0 and at most .* is required"):
        chips.load(tmp_path / "x.toml")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["cores", "lanes", "eu_bytes", "lmem_bytes", "lmem_banks"])
@pytest.mark.parametrize("value", [-1, 0, 10**9, 10**30])
def test_sizes_of_a_chip_are_possible(tmp_path: Path, name: str, value: int):
    (tmp_path / "x.toml").write_text(f'extends = "bm1688"\n{name} = {value}\n')
    with pytest.raises(ConfigError, match=rf"{name}: (a multiple of 4 )?from \d+ to [\d,]+ is required|out of range"):
        chips.load(tmp_path / "x.toml")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("field", "says"),
    [
        ("eu_bytes = 2", "eu_bytes: a multiple of 4"),
        ("max_stride = 0", "max_stride: from 1 to .* is required"),
        ("max_axis = -1", "max_axis: from 1 to .* is required"),
        ("dma_channels = 0", "dma_channels: from 1 to .* is required"),
        ("dma_page_bytes = 0", "dma_page_bytes: from 1 to .* is required"),
    ],
)
def test_figures_that_others_are_divided_by(tmp_path: Path, field: str, says: str):
    (tmp_path / "x.toml").write_text(f'extends = "bm1684x"\n{field}\n')
    with pytest.raises(ConfigError, match=says):
        chips.load(tmp_path / "x.toml")  # type: ignore[arg-type]


def numbers_of(name: str) -> dict[str, object]:
    """The fields of a chip that are numbers, or several of them."""
    ones = {k: v[0] if isinstance(v, tuple) and v else v for k, v in chips.flattened(chips.load(name)).items()}
    return {k: v for k, v in ones.items() if isinstance(v, int | float) and not isinstance(v, bool)}


def with_value(field: str, value: object) -> dict[str, object]:
    table, _, key = field.rpartition(".")
    one = [value, value] if field == "frame_alignment" else value
    return {table: {key: one}} if table else {key: one}


def test_every_number_of_a_chip_has_legal_values():
    named = {field for name in chips.available() for field in numbers_of(name)}
    assert named | {"store_latency_ns", "local_latency_ns", "frame_alignment"} == set(LEGAL)


@pytest.mark.parametrize("field", LEGAL)
def test_numbers_outside_their_legal_values_are_refused(field: str):
    """Below the least, above the most, between the multiples: by the field's name, with what is legal."""
    legal, is_float = LEGAL[field], isinstance(numbers_of("cv183x").get(field), float) or field.endswith("_ns")
    wrong = {legal.least - 1, legal.most * 2, -(10**6)} | ({legal.least} if legal.above else set())
    wrong |= {legal.least + 1} if legal.multiple > 1 else set()
    wrong |= {7, 48} if legal.power_of_two else set()
    for value in wrong:
        with pytest.raises(ConfigError, match=re.escape(f"odd: {field}: {legal} is required, got ")):
            chips.load("cv183x").replace("odd", **with_value(field, float(value) if is_float else int(value)))


@pytest.mark.parametrize(
    ("chip", "field", "value", "says"),
    [
        ("bm1688", "gmem_base", -5, "gmem_base: from 0 to 281,474,976,710,656 is required, got -5"),
        ("bm1688", "gmem_align_bytes", 7, "gmem_align_bytes: a power of two from 8 to 1,048,576 is required, got 7"),
        ("bm1688", "requant_words", 9, "requant_words: from 0 to 3 is required, got 9"),
        ("bm1688", "requant_words", 1, "requant_words: 2 or 3 is required in family bm1684x, got 1"),
        ("cv183x", "requant_words", 2, "requant_words: 0 is required in family cv18xx, got 2"),
        ("bm1688", "ic_parallel_bytes", 0, "ic_parallel_bytes: at least 4 is required in family bm1684x, got 0"),
        ("cv183x", "ic_parallel_bytes", 4, "ic_parallel_bytes: 0 is required in family cv18xx, got 4"),
        ("bm1684x", "gmem_base", 0x200000000, "coeff_start: at least gmem_base = 0x200000000 is required"),
        ("bm1688", "coeff_start", 0x9000000007, "coeff_start: a multiple of gmem_align_bytes = 4,096 is required"),
        ("bm1688", "neuron_start", 0x8800000000, "neuron_start: an address above coeff_start = 0x9000000000"),
        ("cv183x", "io_start", 1 << 41, "io_start: an address above neuron_start = 0x20000000000 is required"),
        ("bm1688", "modes", [], "modes: one mode or several different ones are required, got none"),
        ("bm1688", "modes", ["f16", "f16"], "modes: one mode or several different ones are required, got f16, f16"),
        ("bm1688", "modes", ["f64"], "Invalid enum value 'f64'"),
        ("cv183x", "modes", ["f32", "int8"], "modes: bf16 and int8 alone are possible in family cv18xx, got f32"),
        ("bm1684x", "half_mac_divisor", 9, "half_mac_divisor: at most 2 x cube_pixels = 8 is required, got 9"),
        ("bm1684x", "kernel_memory_bytes", 100, "kernel_memory_bytes: 0, or at least lanes x eu_bytes = 4,096"),
        ("bm1688", "energy_pj_per_mac", 1.0, "energies: both above 0, or none of them, are required"),
        ("cv183x", "frame_alignment", [64, 0], "frame_alignment: a power of two from 1 to 65,536 is required, got 0"),
        ("bm1688", "lone_pools_are_global", "some", "Invalid enum value 'some'"),
        ("bm1688", "conv_accumulators", 1, "Expected `bool`, got `int`"),
        ("bm1688", "family", "", "family: one of bm1684x, "),
    ],
)  # fmt: skip
def test_nonsense_in_a_chip_is_refused(chip: str, field: str, value: object, says: str):
    with pytest.raises(ConfigError, match=f"^odd: {re.escape(says)}"):
        chips.load(chip).replace("odd", **{field: value})


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "a\x1b[1m"])
def test_a_chip_has_a_printable_name(name: str):
    with pytest.raises(ConfigError, match="name: printable text of one line that can name a folder is required"):
        chips.load("bm1688").replace(name, cores=1)


def test_shipped_chips_are_possible():
    assert all(chips.load(name).problem() is None for name in chips.available())


@pytest.fixture(scope="module")
def lowered(tmp_path_factory: pytest.TempPathFactory) -> Model:
    from end_to_end import DIGITS

    import tpusim

    images = np.load(DIGITS / "calibration.npz")["image"][:2]
    return tpusim.compile(DIGITS / "digits.onnx", [{"image": image[None]} for image in images]).tpu


@pytest.mark.parametrize("change", ["fewer", "more", "none", "both"])
@pytest.mark.parametrize("field", ["multiplier", "rshift"])
def test_multipliers_that_are_not_one_for_each_channel(lowered: Model, field: str, change: str):
    text = print_module(lowered.module)
    fields = ("multiplier", "rshift") if change == "both" else (field,)
    for name in fields:
        found = re.search(rf"\b{name}s? = \[(-?\d+(?: : i64)?), (-?\d+[^\]]*)\]", text)
        assert found is not None
        kept = {"fewer": found[2], "both": found[2], "more": f"{found[1]}, {found[1]}, {found[2]}", "none": ""}[change]
        text = text[: found.start()] + re.sub(r"\[.*", f"[{kept}]", found[0]) + text[found.end() :]
    model = Model(parse_module(text, context()), lowered.weights)
    with pytest.raises(ImportModelError, match=r"as the module says .*attributes and constants that go with"):
        to_reordered(model)
    if change != "both":
        with pytest.raises(ImportModelError, match="cannot be exported as the module says"):
            list(products(model))
    with pytest.raises(ImportModelError, match="cannot be computed as the module says"):
        run(model, {"image": np.zeros((1, 1, 8, 8), np.float32)})


@pytest.mark.parametrize("count", [1, 3])
def test_archives_that_swell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int):
    """The bound is on all arrays together, and what is as large as tensors usually are is read."""
    monkeypatch.setattr(arrays, "MAX_UNPACKED", 1 << 20)
    zeros = np.zeros((1 << 18) + 1, np.float32)
    np.savez_compressed(tmp_path / "bomb.npz", **{f"a{i}": zeros[:: 1 if count == 1 else 2] for i in range(count)})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"compressed arrays of at most 1,048,576 bytes are read from"):
        load_tensors(tmp_path / "bomb.npz")
    noise = np.random.default_rng(0).integers(0, 16, 1 << 22).astype(np.uint8)
    np.savez_compressed(tmp_path / "data.npz", x=noise)
    np.savez(tmp_path / "stored.npz", x=zeros)
    assert np.array_equal(load_tensors(tmp_path / "data.npz")["x"], noise)
    assert np.array_equal(load_tensors(tmp_path / "stored.npz")["x"], zeros)
    assert zipfile.ZipFile(tmp_path / "bomb.npz").testzip() is None


def test_folders_of_too_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("b/2.npz", "a/1.npz", "0.npz"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    (tmp_path / "broken").symlink_to("nothing")
    assert [file.relative_to(tmp_path).as_posix() for file in files_in(tmp_path)] == ["0.npz", "a/1.npz", "b/2.npz"]
    monkeypatch.setattr(files, "MOST_FILES", 2)
    with pytest.raises(ConfigError, match="at most 2 files are read"):
        files_in(tmp_path)

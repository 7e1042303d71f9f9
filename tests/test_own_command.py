"""Commands and macro functions that packages add: checked, listed, timed and executed as those that ship."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from own_command import Blend, Exchange, Mirror, blend, exchange, mirror
from streams import Builder, lmem, neuron

from tpusim import chips
from tpusim.errors import CommandError, ImportModelError, SimulationError
from tpusim.isa.check import check
from tpusim.isa.commands import Fn, GlobalKernel, Move
from tpusim.isa.cycles import command_ns, tiu_cycles
from tpusim.isa.listing import assemble, listing
from tpusim.isa.page import page
from tpusim.isa.stream import Program, load, save
from tpusim.isa.text import command_line, parse_command
from tpusim.kernel_library import tiles
from tpusim.registry import COMMANDS, FUNCTIONS, HANDLERS, MEANINGS
from tpusim.simulator import Simulator, simulate
from tpusim.simulator.handlers import handler_of
from tpusim.simulator.meanings import meaning_of

SHAPE = (1, 3, 4, 4)
X = np.arange(-24, 24, dtype=np.int8).reshape(SHAPE)
Y = X[:, :, ::-1].copy()
BLENDED = np.clip((3 * X.astype(np.int64) - Y) >> 1, -128, 127).astype(np.int8)
TABLES = (
    (COMMANDS, "blend", Blend),
    (HANDLERS, "blend", blend),
    (COMMANDS, "exchange", Exchange),
    (HANDLERS, "exchange", exchange),
    (FUNCTIONS, "mirror", Mirror),
    (MEANINGS, "mirror", mirror),
)
PLACES = [lmem(at, SHAPE) for at in (0, 1024, 2048, 3072)]
BLEND = Blend(id=1, dep=0, op="o", a=PLACES[0], b=PLACES[1], output=PLACES[2], weights=(3, -1), shift=1)


@pytest.fixture
def registered() -> Iterator[None]:
    for table, name, thing in TABLES:
        table.add(name, thing)
    yield
    for table, name, _ in TABLES:
        table.remove(name)
    handler_of.cache_clear()
    meaning_of.cache_clear()


def program() -> Program:
    """Load x and y, blend them, mirror the rows of that, store both; and the blend as a global kernel."""
    build = Builder()
    for at, name in enumerate(("x", "y")):
        build.tensor(name, neuron(1024 * at, SHAPE), "input")
    for at, name in enumerate(("blended", "mirrored", "whole"), start=2):
        build.tensor(name, neuron(1024 * at, SHAPE), "output")
    outside = [neuron(1024 * at, SHAPE) for at in range(5)]
    for at in (0, 1):
        build.add(Move, input=outside[at], output=PLACES[at])
    build.add(Blend, a=PLACES[0], b=PLACES[1], output=PLACES[2], weights=(3, -1), shift=1)
    build.add(Fn, function=Mirror(2), inputs=(PLACES[2],), output=PLACES[3])
    for at, name in ((2, "blended"), (3, "mirrored")):
        build.add(Move, input=PLACES[at], output=outside[at], tensor=name)
    body = Blend(id=0, dep=0, op="op", group=0, a=outside[0], b=outside[1], output=outside[4], weights=(3, -1), shift=1)
    build.add(GlobalKernel, body=body, tensor="whole")
    return build.program()


@pytest.mark.usefixtures("registered")
def test_a_command_of_a_package_is_executed() -> None:
    """In local memory and as what a global kernel computes; the clock and the number of products count it."""
    result = simulate(program(), {"x": X, "y": Y})
    np.testing.assert_array_equal(result.tensors["blended"], BLENDED)
    np.testing.assert_array_equal(result.tensors["mirrored"], BLENDED[:, :, ::-1])
    np.testing.assert_array_equal(result.tensors["whole"], BLENDED)
    assert program().header.macs == 2 * 2 * X.size
    assert result.timeline.busy["tiu"] > 0


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("chip", chips.available())
def test_a_transfer_with_two_results(chip: str) -> None:
    """In place; it occupies GDMA, and the clock counts what it says."""
    build, places = Builder(chip), [lmem(at, (1, 3, 4, 4)) for at in (0, 2048)]
    for at, name in enumerate(("x", "y")):
        build.tensor(name, neuron(1024 * at, SHAPE), "input")
        build.add(Move, input=neuron(1024 * at, SHAPE), output=places[at])
    swap = build.add(Exchange, a=places[0], b=places[1], new_a=places[0], new_b=places[1])
    for at, name in enumerate(("was_y", "was_x"), start=2):
        build.tensor(name, neuron(1024 * at, SHAPE), "output")
        build.add(Move, input=places[at - 2], output=neuron(1024 * at, SHAPE), tensor=name)
    found = Simulator(build.program())
    tensors = found.run({"x": X, "y": Y}).tensors
    np.testing.assert_array_equal(tensors["was_y"], Y)
    np.testing.assert_array_equal(tensors["was_x"], X)
    assert found.summary.tiu == 0 and swap.stage == "copy"
    span = found.timeline.spans[2]
    assert span.stop_ns - span.start_ns == pytest.approx(command_ns(swap, build.chip))
    assert parse_command(command_line(swap)) == swap


@pytest.mark.usefixtures("registered")
def test_it_is_written_and_read(tmp_path: Path) -> None:
    path = tmp_path / "own.tpusim"
    save(program(), path)
    assert load(path).commands == program().commands
    text = listing(program())
    assert "blend" in text and "computes blend" in text and '{"name":"mirror","axis":2}' in text
    assert assemble(text, program().coefficients).commands == program().commands
    assert parse_command(command_line(BLEND)) == BLEND


def test_its_rules_and_its_cycles() -> None:
    """32 elements of 16 bits a step in each of 64 lanes: one vector of each channel, three steps."""
    chip = chips.load("bm1684x")
    check(BLEND, chip)
    assert tiu_cycles(BLEND, chip) == 3
    assert command_ns(BLEND, chip) == 3000 / chip.tiu_mhz
    with pytest.raises(CommandError, match="whole_shift requires weights of 8 bits .* got .*200.*; scale the weights"):
        check(Blend(id=1, dep=0, op="o", a=PLACES[0], b=PLACES[1], output=PLACES[2], weights=(200, 1)), chip)
    with pytest.raises(CommandError, match="elementwise_shapes requires"):
        check(Blend(id=1, dep=0, op="o", a=lmem(0, (1, 3, 4, 3)), b=PLACES[1], output=PLACES[2]), chip)
    with pytest.raises(CommandError, match="no TIU cycle formula of CV18xx"):
        tiu_cycles(BLEND, chips.load("cv183x"))


def test_it_is_cut_into_tiles() -> None:
    """A whole layer of it, by the form that the package registers."""
    large = (1, 64, 64, 64)
    outside = [neuron(1 << 20 << at, large) for at in range(3)]
    body = Blend(id=0, dep=0, op="o", a=outside[0], b=outside[1], output=outside[2])
    pieces = tiles(body, chips.load("bm1684x"))
    assert pieces and all(isinstance(piece.body, Blend) for piece in pieces)


def test_without_the_package_errors_name_what_is_missing() -> None:
    with pytest.raises(ValueError, match="Invalid value 'blend': no command of this name is registered"):
        parse_command(command_line(BLEND))
    mirrored = Fn(id=1, dep=0, op="o", function=Mirror(2), inputs=(PLACES[0],), output=PLACES[3])
    with pytest.raises(ValueError, match="Invalid value 'mirror': no macro function of this name is registered"):
        parse_command(command_line(mirrored))
    with pytest.raises(
        SimulationError, match=r"'blend': a handler is required, none .* \(entry points tpusim.machine\)"
    ):
        simulate(program(), {"x": X, "y": Y})
    assert "blend" not in page()


def test_an_installed_package_is_found(tmp_path: Path) -> None:
    """By its entry points, in a new process that imports nothing of it; without it the program is refused."""
    path = tmp_path / "own.tpusim"
    save(program(), path)
    np.savez(tmp_path / "in.npz", x=X, y=Y)
    code = (
        "import sys, numpy as np\n"
        "from tpusim.isa.stream import load\n"
        "from tpusim.simulator import Simulator, simulate\n"
        "from pathlib import Path\n"
        "inputs = dict(np.load(sys.argv[2]))\n"
        "found = simulate(load(Path(sys.argv[1])), inputs).tensors\n"
        "print(int(found['whole'].astype(int).sum()), int(found['mirrored'][0, 0, 0, 0]))\n"
    )
    info = tmp_path / "site" / "own_command-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own-command\nVersion: 1.0\n")
    groups = {"commands": "blend = own_command:Blend", "machine": "blend = own_command:blend"}
    groups |= {"functions": "mirror = own_command:Mirror", "meanings": "mirror = own_command:mirror"}
    (info / "entry_points.txt").write_text("".join(f"[tpusim.{group}]\n{line}\n" for group, line in groups.items()))
    (tmp_path / "site" / "own_command.py").write_text((Path(__file__).parent / "own_command.py").read_text())
    setup = f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r})\n"
    words = [str(path), str(tmp_path / "in.npz")]
    done = subprocess.run([sys.executable, "-c", setup + code, *words], capture_output=True, text=True, check=False)
    assert done.stdout.split() == [str(int(BLENDED.astype(int).sum())), str(int(BLENDED[0, 0, -1, 0]))], done.stderr
    with pytest.raises(ImportModelError, match="no command of this name is registered"):
        load(path)

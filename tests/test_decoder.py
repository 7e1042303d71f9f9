"""Programs of several nets, sessions, decoders with caches, and the proof that prefill, chunks and decode agree."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders.decoders import RUNTIMES, SMALL, nets
from builders.llama_block import llama_block
from msgspec.structs import replace
from onnx import helper

import tpusim
from tpusim.cli import main
from tpusim.compiled_nets import CompiledNets
from tpusim.decoder import Decoder, block_nets, persistent_of
from tpusim.decoder.decoder import HIDDEN
from tpusim.decoder.partition import partition, shown
from tpusim.decoder.prove import prove
from tpusim.errors import ConfigError, ImportModelError, SimulationError
from tpusim.isa.nets import Nets, Persistent, load_nets
from tpusim.isa.stream import load, save
from tpusim.numbers.persistent import stored_numbers
from tpusim.simulator.session import Session
from tpusim.verify.npz import save_tensors

CAPACITY, CHUNK = 16, 4


@cache
def decoder_nets() -> CompiledNets:
    return tpusim.compile_nets(nets(CAPACITY, CHUNK), mode="f16", high_precision=True)


@cache
def states(count: int = CAPACITY) -> np.ndarray:
    return np.random.RandomState(1).randn(count, SMALL.hidden).astype(np.float32)


# ---------------------------------------------------------------------------------------------------------------- nets


def test_weights_are_stored_once_and_results_stay() -> None:
    """The nets of one block have one set of weights; linked, each gives the same bits in the same cycles."""
    model = decoder_nets()
    alone = model["block_cache_0"].program.header.coeff_bytes
    assert model.program.coefficients.nbytes == alone == model["block_0"].program.header.coeff_bytes
    random = np.random.RandomState(0)
    for name, net in model.items():
        x = {e.name: random.randn(*(e.shape or ())).astype(np.float32) for e in net.program.inputs}
        x["position_ids"] = np.zeros_like(x["position_ids"])
        before, after = (tpusim.simulate(p, x) for p in (net.program, model.program[name]))
        assert before.timeline.cycles == after.timeline.cycles
        assert all(np.array_equal(before.tensors[k], after.tensors[k]) for k in before.tensors)


def test_other_weights_are_kept_apart() -> None:
    """A constant that one net alone has is stored for it; equal ones of one net are stored twice."""
    from tpusim.isa.linking import link

    one = decoder_nets()["block_0"].program
    changed = one.coefficients.copy()
    changed[one.constants[0].address - one.header.coeff_address] ^= 1
    found = link({"a": one, "b": replace(one, coefficients=changed), "c": one})
    pages = found.coefficients.nbytes - one.coefficients.nbytes
    assert 0 < pages < one.coefficients.nbytes / 2
    assert [e.address for e in found["a"].constants] == [e.address for e in found["c"].constants]
    assert sum(a != b for a, b in zip(found["a"].constants, found["b"].constants, strict=True)) == 1
    for name, image in (("a", one.coefficients), ("b", changed)):
        for old, new in zip(one.constants, found[name].constants, strict=True):
            at, to = old.address - one.header.coeff_address, new.address - found["a"].header.coeff_address
            assert np.array_equal(image[at : at + old.size], found.coefficients[to : to + new.size])


def test_a_file_of_nets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Round trip; a file of one program is one net, with the same bytes as ever."""
    path = decoder_nets().save(tmp_path / "nets.tpusim")
    found = load_nets(path)
    assert list(found) == list(decoder_nets()) and found.persistent == decoder_nets().program.persistent
    for name, program in found.items():
        expected = decoder_nets().program[name]
        assert (program.commands, program.tensors, program.constants) == (
            expected.commands, expected.tensors, expected.constants
        )  # fmt: skip
    with pytest.raises(ConfigError, match="a program of one net is required here, this file has several"):
        load(path)
    one = tmp_path / "one.tpusim"
    save(decoder_nets()["block_0"].program, one)
    assert list(load_nets(one)) == ["block"]
    assert main(["inspect", str(path), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["nets"]["block_cache_0"]["inputs"]["history_k"] == "f32 1x16x2x16"
    assert said["persistent"]["k_0"] == {"block_kv_0": "history_k", "block_cache_0": "history_k"}
    assert main(["dis", str(path), "--net", "block_1"]) == 1
    assert "one of the nets block_0, block_kv_0, block_cache_0 is required" in capsys.readouterr().err
    assert main(["dis", str(path), "--net", "block_0", "--engine", "gdma", "-q"]) == 0
    assert main(["dis", str(one), "--net", "block_0"]) == 1
    capsys.readouterr()
    assert main(["simulate", str(path), "--net", "block_0", "--prove"]) == 1
    assert "prove its program before `tpusim link`" in capsys.readouterr().err
    assert main(["run", str(path)]) == 1
    assert "is a compiled program, which `tpusim inspect`" in capsys.readouterr().err


def test_a_persistent_tensor_needs_its_own_bytes() -> None:
    from tpusim.isa.linking import link

    model = decoder_nets()
    basic = replace(
        model["block_cache_0"].program, header=replace(model["block_cache_0"].program.header, io_regions=())
    )
    with pytest.raises(
        ConfigError, match="'history_k' of net 'a' shares bytes with other tensors; compile .* io_alone"
    ):
        link({"a": basic}, {"k": {"a": "history_k"}})
    with pytest.raises(ConfigError, match="an input is required, one of input_states.*got 'foo' of net 'a'"):
        link({"a": basic}, {"k": {"a": "foo"}})
    with pytest.raises(ConfigError, match="a net is required, one of a, got 'foo' of net 'b'"):
        link({"a": basic}, {"k": {"b": "foo"}})
    for wrong in (3, ["k"], {"k": "a"}.items()):
        with pytest.raises(ConfigError, match="persistent: inputs by net are required for each name"):
            link({"a": basic}, wrong)  # type: ignore[arg-type]
    twice = {"k": {"a": "history_k"}, "q": {"a": "history_k"}}
    with pytest.raises(ConfigError, match="one name for input 'history_k' of net 'a' is required, got 'k' and 'q'"):
        link({"a": basic}, twice)
    same = tuple(replace(one, name="k_0") for one in model.program.persistent)
    with pytest.raises(ImportModelError, match="persistent tensors of different names are required, got 'k_0' twice"):
        Nets(dict(model.program), same)
    for wrong in ({"k": {}}, {"k": "a"}, {"k": {"a": 1}}):
        with pytest.raises(ConfigError, match="inputs by net are required for 'k'"):
            link({"a": basic}, wrong)  # type: ignore[arg-type]


def test_nets_that_overlap_are_refused() -> None:
    """A net whose neurons, results or commands touch the cache of another; two caches; a cache without bytes for it."""
    program = decoder_nets().program
    caches, cache = program.persistent, program.persistent[0]
    neurons = program["block_0"].header.neuron_address
    for changed, words in (
        ((replace(cache, address=neurons),), "is required|bytes .* are required"),
        ((replace(cache, tensors={}),), "an input of a net is required, got none"),
        ((cache, replace(cache, name="v_0")), "persistent tensors 'k_0' and 'v_0' overlap"),
        ((replace(cache, size=64), *caches[1:]), "bytes .* are required, input 'history_k'"),
        ((replace(cache, tensors={"block_0": "history_k"}),), "an input of a net is required, got 'history_k'"),
    ):
        with pytest.raises(ImportModelError, match=words):
            Nets(dict(program), tuple(changed))
    block = program["block_0"]
    at = next(i for i, c in enumerate(block.commands) if any(v.memory == "gmem" for v in c.writes()))
    views = [replace(v, address=cache.address) if v.memory == "gmem" else v for _, v in block.commands[at].operands()]
    commands = (*block.commands[:at], block.commands[at].with_operands(views), *block.commands[at + 1 :])
    with pytest.raises(ImportModelError, match="net 'block_0': .* writes at .* overlaps persistent tensor 'k_0'"):
        Nets(dict(program) | {"block_0": replace(block, commands=commands)}, caches)
    tensors = (replace(block.tensors[-1], view=replace(block.tensors[-1].view, address=cache.address)), *block.tensors)
    with pytest.raises(ImportModelError, match="net 'block_0': its tensor .* overlaps persistent tensor 'k_0'"):
        Nets(dict(program) | {"block_0": replace(block, tensors=tensors)}, caches)


# ------------------------------------------------------------------------------------------------------------- session


def test_what_a_session_keeps_and_watches() -> None:
    session = Session(decoder_nets().program)
    x = {"input_states": states(1)[None], "position_ids": np.zeros((1, 1)), "attention_mask": np.zeros((1, 1, 1, 17))}
    with pytest.raises(
        SimulationError, match="'block_cache_0' reads 2,048 of the 2,048 bytes of persistent tensor 'k_0'"
    ):
        session.run("block_cache_0", x)
    session.clear()
    empty = session.run("block_cache_0", x).tensors["output_states_Add_f32"]
    keys = np.random.RandomState(2).randn(1, 3, 2, 16)
    session.write("k_0", keys, at=13)
    assert np.array_equal(session.read("k_0")[:, 13:], keys.astype(np.float32))
    assert not session.read("k_0")[:, :13].any() and not session.read("v_0").any()
    written = session.run("block_cache_0", x).tensors["output_states_Add_f32"]
    assert not np.array_equal(written, empty)
    assert np.array_equal(session.run("block_cache_0", x).tensors["output_states_Add_f32"], written)
    state = session.state()
    session.clear()
    assert np.array_equal(session.run("block_cache_0", x).tensors["output_states_Add_f32"], empty)
    session.restore(state)
    assert np.array_equal(session.run("block_cache_0", x).tensors["output_states_Add_f32"], written)
    with pytest.raises(SimulationError, match="has 16 positions, values for .14, 17. go past its end"):
        session.write("k_0", keys, at=14)
    with pytest.raises(SimulationError, match=r"values \(1, n, 2, 16\) are required, got \(1, 3, 2, 8\)"):
        session.write("k_0", keys[..., :8])
    with pytest.raises(ConfigError, match="a persistent tensor of k_0, v_0 is required, got 'k_1'"):
        session.read("k_1")
    with pytest.raises(ConfigError, match="one of the nets block_0, block_kv_0, block_cache_0 is required"):
        session.run("block_1", x)
    other = Session(Nets({"a": decoder_nets().program["block_0"]}))
    for wrong in (state, None, state.tensors):
        with pytest.raises(ConfigError, match="one of a session of the same program is required"):
            other.restore(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "dtype", "fits"),
    [([1.0, -128.0], "int8", True), ([300.0], "int8", False), ([0.5], "int8", False), ([256], "uint8", False),
     ([0.1], "float16", True), ([1e6], "float16", False), ([np.nan], "float32", True)],
)  # fmt: skip
def test_numbers_that_a_persistent_tensor_does_not_have_are_refused(given: Any, dtype: str, fits: bool) -> None:
    """Nothing wraps around or loses a fraction."""
    if fits:
        np.testing.assert_array_equal(stored_numbers("h", given, np.dtype(dtype)), np.asarray(given, dtype))
    else:
        with pytest.raises(ConfigError, match=f"h: numbers that {dtype} has are required"):
            stored_numbers("h", given, np.dtype(dtype))


def test_both_sessions_keep_and_refuse_the_same() -> None:
    """A persistent input that is given is written; names and values that are none are said."""
    node = helper.make_node("Add", ["x", "h"], ["y"])
    x, h, y = (helper.make_tensor_value_info(name, 1, (1, 4)) for name in "xhy")
    proto = helper.make_model(helper.make_graph([node], "adds", [x, h], [y]), ir_version=8)
    model = tpusim.compile_nets({"a": proto}, mode="f32", persistent={"state": {"a": "h"}})
    given = {"x": np.ones((1, 4), np.float32), "h": np.array([[1, 2, 3, 4]], np.float32)}
    for session in (model.session(), model.session("tpu")):
        session.run("a", given)
        assert np.array_equal(session.read("state"), given["h"])
        for call in (session.read, session.shape, lambda name, one=session: one.write(name, np.zeros(1))):
            with pytest.raises(ConfigError, match="a persistent tensor of state is required, got 'q'"):
                call("q")
        for wrong, said in NO_NUMBERS:
            with pytest.raises(ConfigError, match=f"persistent tensor 'state': {said}"):
                session.write("state", wrong)  # type: ignore[arg-type]


NO_NUMBERS = (
    ([[1], [1, 2]], "an array is required, got rows of different lengths"),
    ("text", "real numbers are required, got <U4"),
    (None, "real numbers are required, got object"),
    (np.zeros((2, 64)) * 1j, "real numbers are required, got complex128"),
)


def test_what_is_no_decoder_is_said() -> None:
    model = decoder_nets()
    for wrong in (model.program, "nets.tpusim", None):
        with pytest.raises(ConfigError, match=r"session: one of tpusim.Session\(nets\) is required, got "):
            Decoder(wrong)  # type: ignore[arg-type]
    for wrong, said in NO_NUMBERS:
        with pytest.raises(ConfigError, match=f"states: {said}"):
            model.decoder().feed(wrong)  # type: ignore[arg-type]
    for options, said in (
        ({"most": 17}, "most=17: 0 to 16 are required"),
        ({"most": -1}, "most=-1: 0 to 16 are required"),
        ({"chunks": [3, 0]}, "chunks='3 0': numbers of 1 or more are required"),
    ):
        with pytest.raises(ConfigError, match=said):
            model.prove(**options)
    with pytest.raises(ConfigError, match="samples: calibration samples by net are required, got list"):
        tpusim.compile_nets(nets(CAPACITY, CHUNK), [states()])  # type: ignore[arg-type]


def test_weights_that_change_are_seen() -> None:
    program = decoder_nets().program
    image = program.coefficients.copy()
    changing = Nets({name: replace(net, coefficients=image) for name, net in program.items()}, program.persistent)
    session = Session(changing)
    decoder = Decoder(session, list(changing))
    decoder.feed(states(1))
    image[100] ^= 1
    with pytest.raises(SimulationError, match="the weights of block_0, block_kv_0, block_cache_0 have changed"):
        decoder.feed(states(1))


# ------------------------------------------------------------------------------------------------------------- decoder


def test_a_sequence_in_pieces() -> None:
    """Prefill, chunks and decode of one sequence; keys and values are the same bits in every order of pieces."""
    decoder = decoder_nets().decoder()
    assert isinstance(decoder, Decoder) and decoder.capacity == CAPACITY
    whole = decoder.feed(states())
    caches = [decoder.session.read(name) for name in ("k_0", "v_0")]
    for pieces in ((5, 1, 1, 4, 1, 4), (1,) * CAPACITY, (16,), (3, 13)):
        decoder.clear()
        at, found = 0, list[np.ndarray]()
        for count in pieces:
            found.append(decoder.feed(states()[at : at + count]))
            at += count
        assert decoder.length == CAPACITY
        assert np.allclose(np.concatenate(found), whole, atol=0.02)
        assert np.array_equal(found[0], whole[: pieces[0]])
        assert all(np.array_equal(decoder.session.read(n), x) for n, x in zip(("k_0", "v_0"), caches, strict=True))
    with pytest.raises(ConfigError, match="at most 16 tokens are required, the history of the nets, got 17; clear"):
        decoder.feed(states()[:1])
    decoder.clear()
    with pytest.raises(ConfigError, match="64 numbers for each token are required, got 32"):
        decoder.feed(states()[:1, :32])
    with pytest.raises(ConfigError, match=r"an array \(tokens, hidden\) is required"):
        decoder.feed(states()[0])


def test_masks_and_positions() -> None:
    """As the runtime has them: hidden positions of a history that is not full, new keys after it."""
    decoder = decoder_nets().decoder()
    net = next(n for n in decoder.layers[0] if n.name == "block_kv_0")
    mask = decoder.mask(net, 3, 2)[0, 0]
    seen = np.zeros((CHUNK, CAPACITY + CHUNK), bool)
    seen[:, :3] = True
    seen[:, CAPACITY:] = np.tri(CHUNK, dtype=bool)
    assert mask.dtype == np.float32 and np.array_equal(mask, np.where(seen, 0, HIDDEN))
    assert decoder.positions(net, 3, 2).tolist() == [[3, 4, 0, 0]]


CAUSAL = {"input_states": ("f32", (1, 8, 64)), "attention_mask": ("f32", (1, 1, 8, 8)), "position_ids": ("f32", (1, 8))}
CACHED = {
    "hidden_states": ("f32", (1, 1, 64)), "attention_mask": ("f32", (1, 1, 1, 9)), "pos_ids": ("i32", (1, 1)),
    "past_key_values.0.key": ("f32", (1, 2, 8, 16)), "past_key_values.0.value": ("f32", (1, 2, 8, 16)),
}  # fmt: skip
NEW = {
    "output_states": ("f32", (1, 8, 64)),
    "k_cache_f32": ("f32", (1, 8, 2, 16)),
    "v_cache_f32": ("f32", (1, 8, 2, 16)),
}
PRESENT = {
    "present.0.key": ("f32", (1, 2, 9, 16)), "present.0.value": ("f32", (1, 2, 9, 16)), "y": ("f32", (1, 1, 64)),
}  # fmt: skip


def test_what_nets_are() -> None:
    """By the names and shapes of several exporters: caches by tokens or by heads, results with or without the past."""
    (found,) = block_nets({"block_7": (CAUSAL, NEW)})[7]
    assert (found.rows, found.history, found.axis, found.mask, found.past) == (8, 0, 1, "attention_mask", ())
    (cached,) = block_nets({"decoder": (CACHED, PRESENT)})[0]
    assert (cached.rows, cached.history, cached.axis, cached.positions) == (1, 8, 2, "pos_ids")
    assert cached.new == ("present.0.key", "present.0.value") and cached.takes(8, 3) == 1 and not cached.takes(9, 1)
    assert persistent_of({"decoder": (CACHED, PRESENT)})["k_0"] == {"decoder": "past_key_values.0.key"}
    assert persistent_of({"lm_head": ({"x": ("f32", (1, 64))}, {"y": ("i32", (1, 1))})}) == {}


@pytest.mark.parametrize(
    ("inputs", "results", "words"),
    [
        (CAUSAL, {"y": NEW["output_states"]}, "a block of a decoder is required"),
        (CAUSAL, {k: v for k, v in NEW.items() if k != "v_cache_f32"}, "as many keys as values are required"),
        (CAUSAL | {"foo": ("f32", (1, 8, 64))}, NEW, "one input and one result of hidden states"),
        (
            CAUSAL | {"attention_mask": ("f32", (1, 1, 8, 7))},
            NEW,
            r"a mask \(1, 1, 8, 8\) is required.*got \(1, 1, 8, 7\)",
        ),
        (CACHED, PRESENT | {"present.0.key": ("f32", (1, 2, 7, 16))}, "new keys of 1 tokens are required"),
        (CACHED, PRESENT | {"present.0.key": ("f32", (2, 9))}, r"keys \(1, n, heads, size\) are required"),
    ],
    ids=str,
)
def test_nets_that_are_no_block(inputs: Any, results: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        block_nets({"net": (inputs, results)})


def test_nets_of_different_blocks_have_different_numbers() -> None:
    wide = {k: (t, (*s[:-1], 32) if k[1] == "_" else s) for k, (t, s) in NEW.items()}
    with pytest.raises(ConfigError, match="layer 0: one shape of keys and values is required.*different numbers"):
        block_nets({"a": (CAUSAL, NEW), "b": (CAUSAL, wide)})


# --------------------------------------------------------------------------------------------------------------- prove


def test_in_which_blocks_keys_are_added_up() -> None:
    """By hand: 5 cached tokens of at most 8, new keys after them, in blocks of 4."""
    layers = block_nets({"cache_0": ({**CACHED, "attention_mask": ("f32", (1, 1, 1, 9))}, PRESENT)})
    net = layers[0][0]
    assert shown(partition(net, (4, 4, 1), 5, 0)) == "0-3 | 4 | 5"
    assert shown(partition(net, (9,), 5, 0)) == "0-4+5" and shown(partition(net, (), 5, 0)) == "0-5"
    assert partition(net, (9,), 5, 0) != partition(net, (), 5, 0)  # the new key's place counts in a block
    assert partition(net, (4, 4, 1), 0, 0) == partition(net, (9,), 0, 0)  # but not where it is alone


def test_prefill_chunks_and_decode_agree() -> None:
    found = decoder_nets().prove()
    assert found.passed and len(found.cases) > 30 and found.largest < 1
    assert {case.tokens for case in found.cases} >= {1, 2, 3, 4, 5, 8, 12, 15, 16}
    assert all(case.apart.keys() <= set(range(case.tokens)) for case in found.cases)
    said = found.to_json()
    assert said["failed"] == 0 and sum(said["apart"].values()) > 0
    assert all("key blocks 16" in nets and "against" in nets for nets in said["apart"])


def test_a_hidden_key_of_little_weight_shows() -> None:
    """One key of the last token alone, perhaps within what roundings could change: its blocks do not give that."""

    class Late(Decoder):
        def mask(self, net: Any, at: int, count: int) -> np.ndarray:
            mask = super().mask(net, at, count)
            hidden = (np.arange(mask.shape[-1]) == 2) & (net.history > 0) & (at == CAPACITY - 1)
            return np.where(hidden, np.float32(HIDDEN), mask)

    found = prove(Late(decoder_nets().session()))
    assert {(f.token, f.tensor) for f in found.faults} == {(CAPACITY - 1, "attention")}


def test_one_way_is_no_proof() -> None:
    model = decoder_nets()
    with pytest.raises(ConfigError, match="two ways to the same tokens are required"):
        prove(Decoder(Session(Nets({"block_0": model.program["block_0"]})), ["block_0"]))


FOUND = {
    "MaskOneShort": (1, "attention"), "MaskOneLong": (0, "cached keys"), "MaskShifted": (1, "cached keys"),
    "MaskTooWeak": (0, "cached keys"), "MaskWithoutSelf": (0, "attention"), "MaskOfLater": (0, "attention"),
    "PositionLate": (0, "keys"), "PositionOfChunk": (2, "keys"), "AppendLate": (0, "cached keys"),
    "AppendStale": (0, "cached values"), "AppendFirstOnly": (1, "cached keys"), "AppendSwapped": (0, "cached keys"),
}  # fmt: skip
"""Runtime -> token and tensor at which its fault shows first."""


@pytest.mark.parametrize("runtime", RUNTIMES, ids=lambda kind: kind.__name__)
def test_faults_of_a_runtime(runtime: type[Decoder]) -> None:
    found = prove(runtime(decoder_nets().session(), list(decoder_nets())))
    first = found.faults[0]
    assert (first.token, first.tensor) == FOUND[runtime.__name__] and first.layer == 0
    assert not found.passed and str(first).startswith(f"token {first.token}, layer 0, {first.tensor}: ")


@pytest.mark.parametrize(("fault", "tensor"), [("groups", "states"), ("one weight", "states")])
def test_faults_of_a_net(fault: str, tensor: str) -> None:
    """A decode net with the wrong head of keys, and one whose weight is another; both compute the same caches."""
    other = tpusim.compile_nets(
        {"c": llama_block(1, CAPACITY, sizes=SMALL, fault=fault)}, mode="f16", high_precision=True
    )
    model = decoder_nets()
    mixed = CompiledNets({"block_0": model["block_0"], "block_cache_0": other["c"]})
    assert mixed.program.coefficients.nbytes > 0
    (first,) = {(f.tensor, "block_cache_0" in f.way) for f in mixed.prove().faults}
    assert first == (tensor, True)


def test_prove_and_simulate_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = decoder_nets().save(tmp_path / "nets.tpusim")
    assert main(["prove", str(path), "--tokens", "6", "--chunks", "3", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["cases"] > 3 and said["failed"] == 0 and said["faults"] == []
    x = {e.name: np.zeros(e.shape or (), np.float32) for e in decoder_nets().program["block_cache_0"].inputs}
    save_tensors(tmp_path / "x.npz", x)
    words = ["simulate", str(path), "--net", "block_cache_0", "--input", str(tmp_path / "x.npz"), "-q"]
    assert main([*words, "--out", str(tmp_path / "y.npz")]) == 0
    expected = tpusim.simulate(decoder_nets()["block_cache_0"], x).tensors
    with np.load(tmp_path / "y.npz") as stored:
        assert np.array_equal(stored["k_cache_Add_f32"], expected["k_cache_Add_f32"])
    for words, message in (
        (["prove", str(path), "--tokens", "17"], "--tokens 17: 0 to 16 are required"),
        (["prove", str(path), "--chunks", "0"], "numbers of 1 or more are required"),
        (["prove", str(tmp_path)], "a network or more is required, got none; their files end in .onnx"),
        (["link", str(path), str(path), "--out", str(tmp_path / "z")], "is 'nets' already"),
    ):
        capsys.readouterr()
        assert main(words) == 1
        assert message in capsys.readouterr().err.replace("\n", " "), words


def test_programs_are_linked_as_they_are(tmp_path: Path) -> None:
    for name in ("block_0", "block_cache_0"):
        save(decoder_nets()[name].program, tmp_path / f"{name}.tpusim")
    files = [str(tmp_path / f"{name}.tpusim") for name in ("block_0", "block_cache_0")]
    assert main(["link", *files, "--out", str(tmp_path / "nets.tpusim"), "-q"]) == 0
    found = load_nets(tmp_path / "nets.tpusim")
    assert [one.name for one in found.persistent] == ["k_0", "v_0"]
    assert isinstance(found.persistent[0], Persistent)


@pytest.mark.slow
def test_flat_and_machine_decode_the_same_bits() -> None:
    """Nets with caches in JAX arrays, and on the machine's memory, in a mode whose products have one order of sums."""
    model = tpusim.compile_nets(nets(CAPACITY, CHUNK), mode="w4f16", high_precision=True)
    machine, flat = model.decoder("local"), model.decoder("tpu")
    for pieces in ((5, 4, 1, 1), (1, 1, 4)):
        at = 0
        for count in pieces:
            x = states()[at : at + count]
            assert np.array_equal(machine.feed(x), flat.feed(x)), (pieces, at)
            at += count
        assert all(np.array_equal(machine.session.read(n), flat.session.read(n)) for n in ("k_0", "v_0"))
        machine.clear()
        flat.clear()

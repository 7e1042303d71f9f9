"""The results of one point."""

import msgspec


class Row(msgspec.Struct, frozen=True):
    """One point of a space: its description, and its costs or its error.

    Bytes are those of one run of the point's batch. Measures are None if the point has an error, similarities also if
    nothing was verified.
    """

    model: str
    chip: str
    settings: str
    """Changed fields of the chip, as in "lmem_bytes=131072 bandwidth.s2l=32.0"."""
    mode: str
    strategy: str
    batch: int
    """Batch of this point; 0 is the batch of the model's file."""
    cores: int
    error: str = ""
    note: str = ""
    """Warnings of the stages, for example that a mode was replaced by another."""
    milliseconds: float | None = None
    """On the clock, times the chip's factor, as in `report.json`."""
    cycles: int | None = None
    moved_bytes: int | None = None
    """Loads and stores."""
    weight_bytes: int | None = None
    neuron_bytes: int | None = None
    lmem_bytes: int | None = None
    """The highest local-memory peak of a group, per lane; 0: all layers are global."""
    groups: int | None = None
    global_layers: int | None = None
    least_bytes: int | None = None
    """A lower bound for any grouping: constants, network inputs and results, each moved once."""
    least_cycles: int | None = None
    """A lower bound of cycles for any grouping: products at the peak rate or loads, the longer one (`LowerBounds`)."""
    energy_uj: float | None = None
    """Energy of moved bytes and multiply-accumulates, in uJ; None if the chip's file does not give both energies."""
    cosine: float | None = None
    """The least cosine of the network's results, flat tpu module against top module."""
    euclidean: float | None = None
    upstream_file: str = ""
    """The bmodel that TPU-MLIR's generator made of this cut, in the folder of the exploration."""
    upstream_cycles: int | None = None
    """By the generator's profile of that bmodel."""
    upstream_bytes: int | None = None
    """Loads and stores in that profile."""
    upstream_differ: int | None = None
    """Elements of the network's results on TPU-MLIR's simulator that differ from flat inference."""
    upstream_first: str = ""
    """The first result that differs, and where."""
    upstream_error: str = ""
    """Why the generator or the simulator refused."""
    compiler_cycles: int | None = None
    """By the profile of the bmodel that TPU-MLIR's compiler makes with its cut, `model_deploy.py --opt 2`."""
    compiler_bytes: int | None = None
    compiler_differ: int | None = None
    """Elements of the results that differ between the two bmodels on TPU-MLIR's simulator."""
    compiler_error: str = ""
    """Why TPU-MLIR's compiler or the simulator refused."""
    front: bool = False
    """Whether no other point of the model and batch is at least as good in all chosen measures and better in one."""

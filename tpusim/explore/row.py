"""What is known of one point."""

import msgspec


class Row(msgspec.Struct, frozen=True):
    """One point of a space: what it is, and what it costs or why it cannot be had.

    Bytes are those of one run of the point's batch. Measures are None where there is an error; similarities also where
    nothing was verified.
    """

    model: str
    chip: str
    settings: str
    """What differs from the chip, as in "lmem_bytes=131072 bandwidth.s2l=32.0"."""
    mode: str
    strategy: str
    batch: int
    """Batch of this point; 0 stands for the model's own."""
    cores: int
    error: str = ""
    note: str = ""
    """Warnings on the way, as of a mode that stands for another."""
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
    """What no grouping undercuts: constants, network inputs and results, each moved once."""
    least_cycles: int | None = None
    """The same of cycles: the products at the peak rate or the loads, the longer engine (`LowerBounds`)."""
    energy_uj: float | None = None
    """Of moved bytes and multiply-accumulates, in uJ; None where the chip's file does not give both energies."""
    cosine: float | None = None
    """The least of the network's results, of the flat tpu module against the top module."""
    euclidean: float | None = None
    front: bool = False
    """Whether no other point of the model and batch is as good in all measures asked for, and better in one."""

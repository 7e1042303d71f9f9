"""The state of a calibration in a file: a killed run continues from it and gives the identical table.

An `.npz` of plain arrays. It names its calibration (module, method, bins, samples) and a hash of the samples read so
far; a file of another calibration is refused.
"""

import hashlib
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np

from tpusim.calibration.measured import Measured
from tpusim.errors import CalibrationError
from tpusim.host import arrays
from tpusim.host.documents import decode
from tpusim.host.files import opened, replacing
from tpusim.ir.module import Model
from tpusim.ir.one_file import add_array, digest_of
from tpusim.version import __version__

EVERY_SECONDS = 20.0
"""The interval at which the file is written, which is the most that a killed process loses."""
Tensors = Mapping[str, np.ndarray]


class About(msgspec.Struct, forbid_unknown_fields=True):
    """The identity of a state. samples: the number of samples read; data: a digest of them, in order."""

    tpusim: str
    model: str
    method: str
    samples: int = 0
    data: str = ""


class Taken:
    """The number and the digest of the samples read so far."""

    def __init__(self) -> None:
        self.count = 0
        self.equal = True
        """Whether all have the same values."""
        self._digest = hashlib.sha256()
        self._first: Tensors = {}

    def add(self, sample: Tensors) -> None:
        """Add one sample to the count, and its arrays' bytes to the digest."""
        self.count += 1
        if self.count == 1:
            self._first = dict(sample)
        elif self.equal and not all(np.array_equal(self._first[name], sample[name]) for name in sample):
            self.equal, self._first = False, {}
        for name in sorted(sample):
            add_array(self._digest, name, np.asarray(sample[name]))

    @property
    def data(self) -> str:
        """Digest of all samples in their order."""
        return self._digest.copy().hexdigest()


class State:
    """The file of a calibration. method: everything except module and samples that determines the table, as text."""

    def __init__(self, path: Path, model: Model, method: str) -> None:
        self.path = path
        self._about = About(__version__, digest_of(model.module, model.weights), method)
        self._written = time.monotonic()

    def restore(self, measured: Measured) -> About:
        """Restore `measured` from the file, and return the file's identity (no samples if it does not exist).

        Raises CalibrationError for a file that is damaged, or of another module, method or version.
        """
        if not self.path.exists():
            return self._about
        try:
            with opened(self.path) as file:
                loaded = arrays.load(file)
                found = {name: loaded[name] for name in loaded}  # pyright: ignore[reportArgumentType, reportCallIssue]
            about = decode(bytes(found.pop("about").astype(np.uint8)), About)
            self._require_same(about)
            measured.restore(found)
        except (*arrays.UNREADABLE, IndexError, msgspec.MsgspecError) as error:
            reason = str(error).split("\n", 1)[0]
            raise CalibrationError(
                f"calibration state {self.path}: cannot be read, {reason}; remove it to start again"
            ) from error
        return about

    def _require_same(self, about: About) -> None:
        for what in ("tpusim", "model", "method"):
            wanted, got = getattr(self._about, what), getattr(about, what)
            if wanted != got:
                raise CalibrationError(
                    f"calibration state {self.path}: belongs to another {what}, '{got[:60]}' where '{wanted[:60]}' is "
                    "required; give another file, or remove it to start again"
                )

    def require_samples(self, about: About, taken: Taken) -> None:
        """Raise CalibrationError unless the samples read again are those of the state."""
        if (taken.count, taken.data) != (about.samples, about.data):
            raise CalibrationError(
                f"calibration state {self.path}: belongs to other samples, the first {about.samples} must be as they "
                f"were; got {taken.count} with other values, or in another order; remove the file to start again"
            )

    def keep(self, measured: Measured, taken: Taken) -> None:
        """Write the file if the last write is EVERY_SECONDS ago."""
        if time.monotonic() - self._written >= EVERY_SECONDS:
            self.write(measured, taken)

    def write(self, measured: Measured, taken: Taken) -> None:
        """Write the file, whole or not at all."""
        about = msgspec.structs.replace(self._about, samples=taken.count, data=taken.data)
        content = {"about": np.frombuffer(msgspec.json.encode(about), np.uint8), **measured.state()}
        with replacing(self.path) as temporary, temporary.open("wb") as file:
            np.savez(file, **content)  # pyright: ignore[reportArgumentType]
        self._written = time.monotonic()

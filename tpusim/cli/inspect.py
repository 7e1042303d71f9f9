"""`tpusim inspect`: what a file of MLIR bytecode or a program contains, from its tables alone."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import tyro

from tpusim.cli.command import Command
from tpusim.cli.output import Output
from tpusim.errors import ConfigError

if TYPE_CHECKING:
    from tpusim.ir.bytecode import Bytecode, Resource


@dataclass
class Inspect(Command):
    """Tell who wrote a file of MLIR bytecode, its version, sections, dialects, ops and resources; or a program's nets.

    No op and no attribute is made, so files of dialects that tpusim does not know can be inspected.
    """

    says = (
        "of a program `nets` and `persistent` tensors; of bytecode `version`, `producer`, `sections`, `dialects`, "
        "`functions` (ops of each by name), `ops`, `resources`"
    )

    file: Annotated[Path, tyro.conf.Positional]
    """A file that begins with the magic number of MLIR bytecode, whatever its name, or a program (.tpusim)."""

    def execute(self, console: Output) -> bool:
        """Print what the tables of the file say."""
        from tpusim.ir.bytecode import Bytecode, is_bytecode
        from tpusim.ir.content import is_program
        from tpusim.ir.dialects import context

        if is_program(self.file):
            from tpusim.cli.nets import show_nets
            from tpusim.isa.nets import load_nets

            show_nets(console, load_nets(self.file))
            return True
        if not is_bytecode(self.file):
            why = "is no program and no file of MLIR bytecode" if self.file.exists() else "is no file"
            raise ConfigError(f"inspect: '{self.file}' {why}; a program or a file of MLIR bytecode is required")
        ctx = context()
        ctx.allow_unregistered = True
        found = _found(Bytecode.open(self.file, ctx))
        console.print(f"{self.file}: MLIR bytecode {found['version']} by {found['producer']}", markup=False)
        for title in (one for one in ("sections", "dialects", "functions", "ops", "resources") if found[one]):
            console.print(f"{title}:")
            for name, value in found[title].items():
                console.print(f"  {name:<32} {_shown(value)}", markup=False)
        console.result(**found)
        return True


def _shown(value: Any) -> str:
    """A number with separators; of a function the number of its ops."""
    if isinstance(value, dict):
        count = sum(cast("dict[str, int]", value).values())
        return f"{count:,} op{'s' * (count != 1)}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _found(file: "Bytecode") -> dict[str, Any]:
    groups = (*file.resources.external.items(), *file.resources.of_dialects.items())
    listed = {f"{owner}.{key}": _told(value) for owner, group in groups for key, value in group.items()}
    return {
        "version": file.version,
        "producer": file.producer,
        "sections": file.sizes,
        "dialects": {name: file.dialect_versions.get(name, b"").hex() or "no version" for name in file.dialects},
        "functions": {name: dict(file.ops_of(name).most_common()) for name in file.symbols},
        "ops": dict(file.op_counts.most_common()),
        "resources": listed,
    }


def _told(value: "Resource | None") -> int | str:
    """A resource: bytes of a blob, or the value."""
    if value is None:
        return "declared, without contents"
    return str(value) if isinstance(value, bool | str) else len(value.raw)

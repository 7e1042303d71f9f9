"""`tpusim plugins`: what installed packages add."""

from collections.abc import Iterator
from dataclasses import dataclass

from tpusim.cli.command import Command
from tpusim.cli.output import Output
from tpusim.errors import ConfigError


@dataclass
class Plugins(Command):
    """List what installed packages add to tpusim: kind, name, package with its version, and whether it can be loaded.

    `--no-plugins` at any command leaves all of it out.
    """

    says = '`plugins`, each with kind, name, package and state, which is "ok" or why it cannot be used'

    def execute(self, console: Output) -> bool:
        """Print one line for each thing; True if all of them can be loaded."""
        found = list(_plugins())
        for one in found:
            line = f"{one['kind']:<12} {one['name']:<24} {one['package']:<28} {one['state']}"
            console.print(line, highlight=False, markup=False, soft_wrap=True)
        if not found:
            console.print("no installed package adds anything")
        console.result(plugins=found)
        return all(one["state"] == "ok" for one in found)


def _plugins() -> Iterator[dict[str, str]]:
    from tpusim.registry import tables

    for table in tables():
        for name in table.plugins:
            try:
                table.get(name)
                state = "ok"
            except ConfigError as error:
                state = str(error)
            yield {"kind": table.noun, "name": name, "package": table.package_of(name), "state": state}

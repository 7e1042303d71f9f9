"""Reads and writes bytecode with MLIR's Python bindings, for `tools.Bindings`; runs in their environment.

Argument: the module with `ir`. Each line of stdin is a request as JSON, {"path": ..., "version": ..., "to": ...}:
write the module of the file as bytecode of that version; without a version: print it. Each answer is a line of JSON
with "text", or with "error".
"""

import importlib
import json
import sys
from pathlib import Path
from typing import Any


def _answer(ir: Any, request: dict[str, Any]) -> str:
    with ir.Context() as context:
        context.allow_unregistered_dialects = True
        if hasattr(context, "load_all_available_dialects"):
            context.load_all_available_dialects()
        op = ir.Module.parse(Path(request["path"]).read_bytes()).operation
        if "version" not in request:
            return op.get_asm(enable_debug_info=True, print_generic_op_form=True)
        with Path(request["to"]).open("wb") as file:
            op.write_bytecode(file, desired_version=request["version"])
        return ""


def main() -> None:
    """Answer until stdin ends."""
    ir = importlib.import_module(sys.argv[1])
    for line in sys.stdin:
        try:
            answer = {"text": _answer(ir, json.loads(line))}
        except Exception as error:  # noqa: BLE001  whatever the bindings raise is the answer
            answer = {"error": str(error)[:500]}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

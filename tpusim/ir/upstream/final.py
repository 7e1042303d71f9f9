"""The form of final modules in files: two modules in one another, and a function that runs on the chip.

TPU-MLIR's code generator reads this form. The outer module says what the network is, the inner one what a device has in
its memory. `@main` takes the inputs and calls `@subfunc_0`, which has all other ops. In memory a module has one
function; `nested` makes the module that is written, and `tpusim.ir.functions.merge_functions` undoes it.
"""

from xdsl.dialects.builtin import DenseArrayBase, ModuleOp, StringAttr, i32
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Region

from tpusim.ir.attrs import int_attr
from tpusim.ir.functions import MAIN, SUBNET, function_of
from tpusim.ir.opaque import opaque_mode
from tpusim.ir.upstream.absent import completed

STATE, ADDRESSED = "module.state", StringAttr("TPU_ADDRESSED")
OF_DEVICE = frozenset(
    f"module.{key}"
    for key in (
        "coeff_addr", "coeff_size", "device_id", "dynamic_coeff_offset", "io_addr", "io_size", "neuron_addr",
        "neuron_size", "step",
    )
)  # fmt: skip
"""Attributes of the inner module."""
INPUT = "top.Input"


def written(module: ModuleOp) -> ModuleOp:
    """The module that a file has, with all operands and results of TPU-MLIR's ops; itself if it is that."""
    return completed(nested(module))


def nested(module: ModuleOp) -> ModuleOp:
    """A copy of a final module of one function in the form of files; any other module as it is."""
    main = _only_function(module)
    if module.attributes.get(STATE) != ADDRESSED or main is None:
        return module
    main = main.clone()
    subnet = _cut(main)
    of_device, of_network = dict[str, Attribute](), dict[str, Attribute]()
    for key, value in module.attributes.items():
        (of_device if key in OF_DEVICE else of_network)[key] = value
    inner = ModuleOp([main, subnet], of_device, module.sym_name)
    return ModuleOp([inner], of_network, module.sym_name)


def _only_function(module: ModuleOp) -> FuncOp | None:
    """The function of a module that has nothing else, calls nothing, and whose inputs alone read its arguments."""
    found = list(module.ops)
    if len(found) != 1 or not isinstance(found[0], FuncOp) or found[0].sym_name.data != MAIN:
        return None
    main = found[0]
    if len(main.body.blocks) != 1 or any(isinstance(op, CallOp) for op in main.walk()):
        return None
    if any(function_of(op)[0] != MAIN for op in main.body.block.ops):
        return None  # TPU-MLIR cut it into several
    read = (use.operation.name == INPUT for argument in main.body.block.args for use in argument.uses)
    return main if all(read) and isinstance(main.body.block.last_op, ReturnOp) else None


def _cut(main: FuncOp) -> FuncOp:
    """Move all ops but the inputs out of a function into one that it calls."""
    block = main.body.block
    inputs = [op for op in block.ops if op.name == INPUT]
    values = [op.results[0] for op in inputs]
    body = Block(arg_types=[value.type for value in values])
    for op in list(block.ops):
        if op not in inputs:
            op.detach()
            body.add_op(op)
    for op, value, argument in zip(inputs, values, body.args, strict=True):
        value.replace_uses_with_if(argument, lambda use: use.operation.parent is not block)
        argument.location = op.location
    last = body.last_op
    assert isinstance(last, ReturnOp)
    results = [value.type for value in last.operands]
    name, _ = SUBNET
    call = CallOp(name, values, results)
    block.add_ops([call, ReturnOp(*call.results)])
    subnet = FuncOp(name, ([value.type for value in values], results), Region(body))
    subnet.attributes.update(_subnet_attributes())
    return subnet


def _subnet_attributes() -> dict[str, Attribute]:
    """What TPU-MLIR states of the only subnet: its number, that it runs on the chip with fixed shapes, no next one."""
    _, mode = SUBNET
    return {
        "id": int_attr(0),
        "mode": opaque_mode("tpu.run_mode", mode),
        "next_index": DenseArrayBase.from_list(i32, [-1]),
    }

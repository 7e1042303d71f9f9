"""The form of final modules in files: two modules in one another, and a function that runs on the chip.

TPU-MLIR's code generator reads this form. The outer module says what the network is, the inner one what a device has in
its memory. `@main` takes the inputs and calls `@subfunc_0`, which has all other ops, or several functions if the ops
state several. In memory a module has one function; `nested` makes the module that is written, and
`tpusim.ir.functions.merge_functions` undoes it.
"""

from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Region

from tpusim.ir.functions import MAIN, SUBNET
from tpusim.ir.upstream.absent import completed
from tpusim.ir.upstream.subnets import INPUT, cut, functions_in, has_host_functions, outlined, subnet_attributes

STATE, ADDRESSED = "module.state", StringAttr("TPU_ADDRESSED")
OF_DEVICE = frozenset(
    f"module.{key}"
    for key in (
        "coeff_addr", "coeff_size", "device_id", "dynamic_coeff_offset", "io_addr", "io_size", "neuron_addr",
        "neuron_size", "private_size", "step",
    )
)  # fmt: skip
"""Attributes of the inner module."""


def written(module: ModuleOp) -> ModuleOp:
    """The module that a file has, with all operands and results of TPU-MLIR's ops; itself if it is that."""
    return completed(nested(module))


def nested(module: ModuleOp) -> ModuleOp:
    """A copy of a module of one function in the form of files: a final one nested, host functions outlined of others.

    Any other module is returned as it is.
    """
    main = _only_function(module)
    if main is None or (module.attributes.get(STATE) != ADDRESSED and not has_host_functions(main)):
        return module
    main = main.clone()
    if module.attributes.get(STATE) != ADDRESSED:
        return ModuleOp([main, *outlined(main)], dict(module.attributes), module.sym_name)
    subnets = cut(main) if len(functions_in(main)) > 1 else [_all_moved(main)]
    of_device, of_network = dict[str, Attribute](), dict[str, Attribute]()
    for key, value in module.attributes.items():
        (of_device if key in OF_DEVICE else of_network)[key] = value
    inner = ModuleOp([main, *subnets], of_device, module.sym_name)
    return ModuleOp([inner], of_network, module.sym_name)


def _only_function(module: ModuleOp) -> FuncOp | None:
    """The function of a module that has nothing else, calls nothing, and whose inputs alone read its arguments."""
    found = list(module.ops)
    if len(found) != 1 or not isinstance(found[0], FuncOp) or found[0].sym_name.data != MAIN:
        return None
    main = found[0]
    if len(main.body.blocks) != 1 or any(isinstance(op, CallOp) for op in main.walk()):
        return None
    read = (use.operation.name == INPUT for argument in main.body.block.args for use in argument.uses)
    return main if all(read) and isinstance(main.body.block.last_op, ReturnOp) else None


def _all_moved(main: FuncOp) -> FuncOp:
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
    name, mode = SUBNET
    call = CallOp(name, values, results)
    block.add_ops([call, ReturnOp(*call.results)])
    subnet = FuncOp(name, ([value.type for value in values], results), Region(body))
    subnet.attributes.update(subnet_attributes(0, mode, -1))
    return subnet

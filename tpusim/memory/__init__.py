"""Global memory: addresses for constants and for every tensor that crosses it (docs/spec/hardware.md 3).

Input: state TPU_DIVIDED. Output: state TPU_ADDRESSED: top.Weight, top.Input, group results and results of global
layers carry their byte address in the tensor type; the module says where both regions start and how long they are.
Tensors inside groups get no address. Two tensors share bytes only if they never live at the same time; an in-place op
passes its operand's bytes on. The stage changes no op and no order.
"""

from tpusim.memory.assign import assign_addresses

__all__ = ["assign_addresses"]

"""Global memory: addresses for constants and for every tensor that crosses it (docs/spec/hardware.md 3).

Input: state TPU_DIVIDED. Output: state TPU_ADDRESSED: top.Weight, top.Input, group results and results of global
layers carry their byte address in the tensor type; the module states start and length of both regions.
Tensors inside groups get no address. Two tensors share bytes only if they are never alive at the same time; the result
of an in-place op has its operand's bytes. In the mode `io_alone` no input and no result shares bytes with another
tensor, so that both survive a run (`tpusim.isa.linking`). The stage changes no op and no order.
"""

from tpusim.memory.assign import AddressMode, assign_addresses, require_mode

__all__ = ["AddressMode", "assign_addresses", "require_mode"]

"""Decoders of language models: the nets of their blocks, run with caches of keys and values.

Input: nets on a session, of the machine (`tpusim.simulator.Session`) or flat (`tpusim.inference.session.FlatSession`).
`nets` recognises what a net computes by the names and shapes of its tensors; no other description is needed. `decoder`
does what the runtime does around the nets: it chooses a net by the numbers of new and of cached tokens, makes its mask
and positions, and appends the new keys and values in place. `prove` compares all ways to the same tokens: prefill,
chunks, and one token after another; `partition` says when they must agree in every bit.

The room knows no op. Of how a net is computed it knows only how many keys one block of attention takes.
"""

from tpusim.decoder.decoder import Decoder, Step
from tpusim.decoder.nets import BlockNet, block_nets, persistent_of

__all__ = ["BlockNet", "Decoder", "Step", "block_nets", "persistent_of"]

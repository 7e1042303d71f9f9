"""Decoders of language models: the nets of their blocks, run with caches of keys and values.

Input: nets on a session, of the machine (`tpusim.simulator.Session`) or flat (`tpusim.inference.session.FlatSession`).
`nets` says what a net computes, by the names and shapes of its tensors; nothing else is stated of it. `decoder` does
what the runtime does around the nets: it chooses one for the tokens that come and the tokens that are cached, makes its
mask and positions, and appends the new keys and values in place. `prove` compares all ways to the same tokens:
prefill, chunks, and one token after another; `partition` says when they must agree in every bit.

It knows no op, and nothing of how a net is computed but the keys that one block of attention takes.
"""

from tpusim.decoder.decoder import Decoder, Step
from tpusim.decoder.nets import BlockNet, block_nets, persistent_of

__all__ = ["BlockNet", "Decoder", "Step", "block_nets", "persistent_of"]

"""The shared language of the stages: types, attributes, text form and weights. It knows no op and no stage.

`types` has the quantised element types and addressed tensors, `attrs` plain Python values for attributes and `#tpu.lg`,
`text` parses and prints modules the way MLIR does (locations are op names), `weights` is the npz side of a module and
`module` the pair of both, the artefact that stages hand on.
"""

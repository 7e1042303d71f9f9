"""Advice about nodes that tpusim cannot import, by node type."""

from tpusim.errors import option

OUTSIDE = "how many results it has depends on the data; end the network before it with {outputs}, and run it afterwards"
TRAINING = "it belongs to training; export the model for inference"
RANDOM = "its result is another in every run; export the model for inference, or make it an input ({inputs})"
SEQUENCES = "sequences of tensors have no form on the chip; export the model with tensors, or unroll the loop"
TEXT = "text has no form on the chip; start the network after it with {inputs}"
ADVICE: dict[str, str] = {
    **dict.fromkeys(("NonZero", "Unique"), OUTSIDE),
    **dict.fromkeys(("Adam", "Adagrad", "Momentum", "Gradient"), TRAINING),
    **dict.fromkeys(
        ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"), RANDOM
    ),
    **dict.fromkeys(
        ("SequenceConstruct", "SequenceInsert", "SequenceErase", "SequenceAt", "SequenceEmpty", "SplitToSequence",
         "ConcatFromSequence", "SequenceMap", "SequenceLength", "Optional", "OptionalGetElement"), SEQUENCES
    ),
    **dict.fromkeys(("StringConcat", "StringNormalizer", "StringSplit", "RegexFullMatch", "TfIdfVectorizer"), TEXT),
    "ImageDecoder": "it reads a file; start the network after it with {inputs}, and give it decoded images",
    "DeformConv": "export the convolution with GridSample and MatMul, which tpusim has, or cut it out with {outputs}",
    "MaxRoiPool": "export RoiAlign with a fixed sampling_ratio in its place",
}  # fmt: skip


def no_such_op(op_type: str, domain: str) -> str:
    """The reason why a node of an unknown type is refused, with advice."""
    known = ADVICE.get(op_type, "") if domain in ("", "ai.onnx", "ai.onnx.preview.training") else ""
    spelled = known.format(outputs=option("outputs"), inputs=option("inputs"))
    return "tpusim has no such op" + (f": {spelled}" if known else "")

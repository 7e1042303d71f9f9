"""Matrix products: MatMul and Gemm."""

from xdsl.ir import SSAValue

from tpusim.frontend.onnx.node import Mapper, Node
from tpusim.ops.matmul import TopMatMul, make_gemm


def matmul(node: Node) -> SSAValue:
    """MatMul: matrices along the last two axes."""
    return TopMatMul.make(node.builder, node.value(0), node.value(1), name=node.output)


def gemm(node: Node) -> SSAValue:
    """Gemm: alpha*A'*B' + beta*C."""
    node.take("broadcast")  # before opset 7; C has always been broadcast here
    options = node.options("alpha", "beta", left_transpose="transA", right_transpose="transB")
    options |= {key: bool(options[key]) for key in ("left_transpose", "right_transpose") if key in options}
    values = node.value(0), node.value(1), node.optional(2)
    return make_gemm(node.builder, *values, **options, name=node.output)


MAPPERS: dict[str, Mapper] = {"MatMul": matmul, "Gemm": gemm}

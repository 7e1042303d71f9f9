// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// A Concat with an operand that cannot have a relu keeps its Relu; the convolution before that operand gets a relu too.
// WEIGHT filter = 1 2 3

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<1x4x6x6xf32>, %in1: tensor<1x2x4x4xf32>) -> tensor<1x10x4x4xf32> {
    %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
    %z = "top.Input"(%in1) : (tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32> loc("z")
    %filter = "top.Weight"() : () -> tensor<8x4x3x3xf32> loc("filter")
    %none = "top.None"() : () -> none
    %a = "top.Conv"(%x, %filter, %none) {kernel_shape = [3, 3], strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1], group = 1} : (tensor<1x4x6x6xf32>, tensor<8x4x3x3xf32>, none) -> tensor<1x8x4x4xf32> loc("a")
    %c = "top.Concat"(%a, %z) {axis = 1} : (tensor<1x8x4x4xf32>, tensor<1x2x4x4xf32>) -> tensor<1x10x4x4xf32> loc("c")
    %y = "top.Relu"(%c) : (tensor<1x10x4x4xf32>) -> tensor<1x10x4x4xf32> loc("y")
    func.return %y : tensor<1x10x4x4xf32>
  }
}

// CHECK: %a = "top.Conv"(%x, %filter, %none) {{{.*}}do_relu = true{{.*}}} {{.*}} loc("a_move_ahead_relu_move_ahead_relu_move_ahead_relu_move_ahead_relu_move_ahead_relu_move_ahead_relu_move_ahead_relu_move_ahead_relu_move_ahead_relu_move_ahead_relu")
// CHECK-NEXT: %c = "top.Concat"(%a, %z) {axis = 1 : si32}{{.*}} loc("c")
// CHECK-NEXT: %y = "top.Relu"(%c) {{.*}} loc("y")
// CHECK-NEXT: func.return %y : tensor<1x10x4x4xf32>

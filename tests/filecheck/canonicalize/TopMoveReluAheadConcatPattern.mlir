// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// A Relu after a Concat moves to the operands of the Concat, where it becomes an attribute of their ops.
// WEIGHT filter = 1 2 3
// WEIGHT bias = 1 2 3

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<1x4x6x6xf32>) -> tensor<1x16x4x4xf32> {
    %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
    %filter = "top.Weight"() : () -> tensor<8x4x3x3xf32> loc("filter")
    %none = "top.None"() : () -> none
    %a = "top.Conv"(%x, %filter, %none) {kernel_shape = [3, 3], strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1], group = 1} : (tensor<1x4x6x6xf32>, tensor<8x4x3x3xf32>, none) -> tensor<1x8x4x4xf32> loc("a")
    %bias = "top.Weight"() : () -> tensor<8xf32> loc("bias")
    %b0 = "top.Conv"(%x, %filter, %bias) {kernel_shape = [3, 3], strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1], group = 1} : (tensor<1x4x6x6xf32>, tensor<8x4x3x3xf32>, tensor<8xf32>) -> tensor<1x8x4x4xf32> loc("b0")
    %c0 = "top.Concat"(%a, %b0) {axis = 1} : (tensor<1x8x4x4xf32>, tensor<1x8x4x4xf32>) -> tensor<1x16x4x4xf32> loc("c0")
    %y = "top.Relu"(%c0) : (tensor<1x16x4x4xf32>) -> tensor<1x16x4x4xf32> loc("y")
    func.return %y : tensor<1x16x4x4xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
// CHECK-NEXT: %filter = "top.Weight"() : () -> tensor<8x4x3x3xf32> loc("filter")
// CHECK-NEXT: %none = "top.None"() {{.*}} -> none
// CHECK-NEXT: %a = "top.Conv"(%x, %filter, %none) {kernel_shape = [3 : i64, 3 : i64], strides = [1 : i64, 1 : i64], pads = [0 : i64, 0 : i64, 0 : i64, 0 : i64], dilations = [1 : i64, 1 : i64], group = 1 : i64, do_relu = true, relu_limit = -1.000000e+00 : f64}{{.*}} -> tensor<1x8x4x4xf32> loc("a_move_ahead_relu")
// CHECK-NEXT: %bias = "top.Weight"() : () -> tensor<8xf32> loc("bias")
// CHECK-NEXT: %b0 = "top.Conv"(%x, %filter, %bias) {kernel_shape = [3 : i64, 3 : i64], strides = [1 : i64, 1 : i64], pads = [0 : i64, 0 : i64, 0 : i64, 0 : i64], dilations = [1 : i64, 1 : i64], group = 1 : i64, do_relu = true, relu_limit = -1.000000e+00 : f64}{{.*}} -> tensor<1x8x4x4xf32> loc("b0_move_ahead_relu")
// CHECK-NEXT: %c0 = "top.Concat"(%a, %b0) {axis = 1 : si32}{{.*}} -> tensor<1x16x4x4xf32> loc("y")
// CHECK-NEXT: func.return %c0 : tensor<1x16x4x4xf32>

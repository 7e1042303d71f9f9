// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// A BatchNorm after a Conv goes into its filter and bias.
// WEIGHT filter = 1 2 3
// WEIGHT bias = 1 2 3

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<1x4x6x6xf32>) -> tensor<1x8x4x4xf32> {
    %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
    %filter = "top.Weight"() : () -> tensor<8x4x3x3xf32> loc("filter")
    %none = "top.None"() : () -> none
    %a = "top.Conv"(%x, %filter, %none) {kernel_shape = [3, 3], strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1], group = 1} : (tensor<1x4x6x6xf32>, tensor<8x4x3x3xf32>, none) -> tensor<1x8x4x4xf32> loc("a")
    %bias = "top.Weight"() : () -> tensor<8xf32> loc("bias")
    %y = "top.BatchNorm"(%a, %bias, %bias, %bias, %bias) {epsilon = 1.000000e-05 : f64} : (tensor<1x8x4x4xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) -> tensor<1x8x4x4xf32> loc("y")
    func.return %y : tensor<1x8x4x4xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
// CHECK-NEXT: %0 = "top.Weight"() : () -> tensor<8x4x3x3xf32> loc("y_filter")
// CHECK-NEXT: %1 = "top.Weight"() : () -> tensor<8xf32> loc("y_bias")
// CHECK-NEXT: %a = "top.Conv"(%x, %0, %1) {kernel_shape = [3 : i64, 3 : i64], strides = [1 : i64, 1 : i64], pads = [0 : i64, 0 : i64, 0 : i64, 0 : i64], dilations = [1 : i64, 1 : i64], group = 1 : i64{{.*}} -> tensor<1x8x4x4xf32> loc("y")
// CHECK-NEXT: func.return %a : tensor<1x8x4x4xf32>

// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// A Conv with a kernel of 1x1 goes into the filter of the Conv after it.
// WEIGHT pointwise = 1 2 3
// WEIGHT filter = 1 2 3
// WEIGHT bias = 1 2 3

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<1x4x6x6xf32>) -> tensor<1x8x4x4xf32> {
    %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
    %pointwise = "top.Weight"() : () -> tensor<4x4x1x1xf32> loc("pointwise")
    %none = "top.None"() : () -> none
    %a = "top.Conv"(%x, %pointwise, %none) {kernel_shape = [1, 1], strides = [1, 1], pads = [0, 0, 0, 0]} : (tensor<1x4x6x6xf32>, tensor<4x4x1x1xf32>, none) -> tensor<1x4x6x6xf32> loc("a")
    %filter = "top.Weight"() : () -> tensor<8x4x3x3xf32> loc("filter")
    %bias = "top.Weight"() : () -> tensor<8xf32> loc("bias")
    %y = "top.Conv"(%a, %filter, %bias) {kernel_shape = [3, 3], strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1], group = 1} : (tensor<1x4x6x6xf32>, tensor<8x4x3x3xf32>, tensor<8xf32>) -> tensor<1x8x4x4xf32> loc("y")
    func.return %y : tensor<1x8x4x4xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
// CHECK-NEXT: %bias = "top.Weight"() : () -> tensor<8xf32> loc("bias")
// CHECK-NEXT: %0 = "top.Weight"() : () -> tensor<8x4x3x3xf32> loc("y_merged_filter")
// CHECK-NEXT: %y = "top.Conv"(%x, %0, %bias) {kernel_shape = [3 : i64, 3 : i64], strides = [1 : i64, 1 : i64], pads = [0 : i64, 0 : i64, 0 : i64, 0 : i64], dilations = [1 : i64, 1 : i64], group = 1 : i64{{.*}} -> tensor<1x8x4x4xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<1x8x4x4xf32>

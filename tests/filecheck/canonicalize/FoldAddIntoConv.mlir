// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// An Add of one value per channel after a Conv without bias becomes its bias.
// WEIGHT pointwise = 1 2 3
// WEIGHT factors = 1 2 3 4

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> {
    %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
    %pointwise = "top.Weight"() : () -> tensor<4x4x1x1xf32> loc("pointwise")
    %none = "top.None"() : () -> none
    %a = "top.Conv"(%x, %pointwise, %none) {kernel_shape = [1, 1], strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1], group = 1} : (tensor<1x4x6x6xf32>, tensor<4x4x1x1xf32>, none) -> tensor<1x4x6x6xf32> loc("a")
    %factors = "top.Weight"() : () -> tensor<4x1x1xf32> loc("factors")
    %y = "top.Add"(%a, %factors) : (tensor<1x4x6x6xf32>, tensor<4x1x1xf32>) -> tensor<1x4x6x6xf32> loc("y")
    func.return %y : tensor<1x4x6x6xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
// CHECK-NEXT: %0 = "top.Weight"() : () -> tensor<4x4x1x1xf32> loc("y_filter")
// CHECK-NEXT: %1 = "top.Weight"() : () -> tensor<4xf32> loc("y_bias")
// CHECK-NEXT: %a = "top.Conv"(%x, %0, %1) {kernel_shape = [1 : i64, 1 : i64], strides = [1 : i64, 1 : i64], pads = [0 : i64, 0 : i64, 0 : i64, 0 : i64], dilations = [1 : i64, 1 : i64], group = 1 : i64{{.*}} -> tensor<1x4x6x6xf32> loc("y")
// CHECK-NEXT: func.return %a : tensor<1x4x6x6xf32>

// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// A 3-D Conv whose kernel spans the depth becomes a 2-D Conv; the depth becomes channels.
// WEIGHT filter = 1 2 3

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<1x4x2x6x6xf32>) -> tensor<1x8x1x4x4xf32> {
    %x = "top.Input"(%in) : (tensor<1x4x2x6x6xf32>) -> tensor<1x4x2x6x6xf32> loc("x")
    %filter = "top.Weight"() : () -> tensor<8x4x2x3x3xf32> loc("filter")
    %none = "top.None"() : () -> none
    %y = "top.Conv"(%x, %filter, %none) {kernel_shape = [2, 3, 3], strides = [1, 1, 1], pads = [0, 0, 0, 0, 0, 0], dilations = [1, 1, 1], group = 1} : (tensor<1x4x2x6x6xf32>, tensor<8x4x2x3x3xf32>, none) -> tensor<1x8x1x4x4xf32> loc("y")
    func.return %y : tensor<1x8x1x4x4xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<1x4x2x6x6xf32>) -> tensor<1x4x2x6x6xf32> loc("x")
// CHECK-NEXT: %none = "top.None"() {{.*}} -> none
// CHECK-NEXT: %y = "top.Weight"() : () -> tensor<8x8x3x3xf32> loc("y_filter_2d")
// CHECK-NEXT: %y_1 = "top.Reshape"(%x) {shape = [1 : i64, 8 : i64, 6 : i64, 6 : i64]}{{.*}} -> tensor<1x8x6x6xf32> loc("y_input_2d")
// CHECK-NEXT: %y_2 = "top.Conv"(%y_1, %y, %none) {kernel_shape = [3 : i64, 3 : i64], strides = [1 : i64, 1 : i64], pads = [0 : i64, 0 : i64, 0 : i64, 0 : i64], dilations = [1 : i64, 1 : i64], group = 1 : i64{{.*}} -> tensor<1x8x4x4xf32> loc("y_2d")
// CHECK-NEXT: %y_3 = "top.Reshape"(%y_2) {shape = [1 : i64, 8 : i64, 1 : i64, 4 : i64, 4 : i64]}{{.*}} -> tensor<1x8x1x4x4xf32> loc("y")
// CHECK-NEXT: func.return %y_3 : tensor<1x8x1x4x4xf32>

// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// A Pad of zeros before a Conv becomes the padding of the Conv.
// WEIGHT filter = 1 2 3

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<1x4x6x6xf32>) -> tensor<1x8x6x6xf32> {
    %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
    %a = "top.Pad"(%x) {paddings = [0, 0, 1, 1, 0, 0, 1, 1], mode = "constant", val = 0.000000e+00 : f64} : (tensor<1x4x6x6xf32>) -> tensor<1x4x8x8xf32> loc("a")
    %filter = "top.Weight"() : () -> tensor<8x4x3x3xf32> loc("filter")
    %none = "top.None"() : () -> none
    %y = "top.Conv"(%a, %filter, %none) {kernel_shape = [3, 3], strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1], group = 1} : (tensor<1x4x8x8xf32>, tensor<8x4x3x3xf32>, none) -> tensor<1x8x6x6xf32> loc("y")
    func.return %y : tensor<1x8x6x6xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
// CHECK-NEXT: %filter = "top.Weight"() : () -> tensor<8x4x3x3xf32> loc("filter")
// CHECK-NEXT: %none = "top.None"() {{.*}} -> none
// CHECK-NEXT: %y = "top.Conv"(%x, %filter, %none) {kernel_shape = [3 : i64, 3 : i64], strides = [1 : i64, 1 : i64], pads = [1 : i64, 1 : i64, 1 : i64, 1 : i64], dilations = [1 : i64, 1 : i64], group = 1 : i64{{.*}} -> tensor<1x8x6x6xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<1x8x6x6xf32>

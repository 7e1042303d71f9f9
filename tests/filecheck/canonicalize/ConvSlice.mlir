// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// A Slice that cuts rows or columns off which the padding of the Conv made is removed, and the Conv has less
// padding.
// WEIGHT filter = 1 2 3
// WEIGHT bias = 1 2 3

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<1x4x6x6xf32>) -> tensor<1x8x5x5xf32> {
    %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
    %filter = "top.Weight"() : () -> tensor<8x4x3x3xf32> loc("filter")
    %bias = "top.Weight"() : () -> tensor<8xf32> loc("bias")
    %a = "top.Conv"(%x, %filter, %bias) {kernel_shape = [3, 3], strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1], group = 1} : (tensor<1x4x6x6xf32>, tensor<8x4x3x3xf32>, tensor<8xf32>) -> tensor<1x8x6x6xf32> loc("a")
    %y = "top.Slice"(%a) {offset = [0, 0, 1, 0], steps = [1, 1, 1, 1], ends = [1, 8, 6, 5]} : (tensor<1x8x6x6xf32>) -> tensor<1x8x5x5xf32> loc("y")
    func.return %y : tensor<1x8x5x5xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
// CHECK-NEXT: %filter = "top.Weight"() : () -> tensor<8x4x3x3xf32> loc("filter")
// CHECK-NEXT: %bias = "top.Weight"() : () -> tensor<8xf32> loc("bias")
// CHECK-NEXT: %y = "top.Conv"(%x, %filter, %bias) {kernel_shape = [3 : i64, 3 : i64], strides = [1 : i64, 1 : i64], pads = [0 : i64, 1 : i64, 1 : i64, 0 : i64], dilations = [1 : i64, 1 : i64], group = 1 : i64{{.*}} -> tensor<1x8x5x5xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<1x8x5x5xf32>

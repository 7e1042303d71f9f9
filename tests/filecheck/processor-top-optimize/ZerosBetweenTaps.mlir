// RUN: tpusim opt -p 'processor-assign{chip=cv183x mode=BF16},processor-top-optimize' %s | filecheck %s
//
// A Conv with a dilation above 15 becomes one with a smaller dilation and zeros between the taps of its filter.
// WEIGHT filter = 1 2 3

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<1x4x34x34xf32>) -> tensor<1x8x2x2xf32> {
    %x = "top.Input"(%in) : (tensor<1x4x34x34xf32>) -> tensor<1x4x34x34xf32> loc("x")
    %filter = "top.Weight"() : () -> tensor<8x4x3x3xf32> loc("filter")
    %none = "top.None"() : () -> none
    %y = "top.Conv"(%x, %filter, %none) {kernel_shape = [3, 3], strides = [1, 1], pads = [0, 0, 0, 0], dilations = [16, 16], group = 1} : (tensor<1x4x34x34xf32>, tensor<8x4x3x3xf32>, none) -> tensor<1x8x2x2xf32> loc("y")
    func.return %y : tensor<1x8x2x2xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<1x4x34x34xf32>) -> tensor<1x4x34x34xf32> loc("x")
// CHECK-NEXT: %filter = "top.Weight"() : () -> tensor<8x4x3x3xf32> loc("filter")
// CHECK-NEXT: %none = "top.None"() {{.*}} -> none
// CHECK-NEXT: %0 = "top.Weight"() : () -> tensor<8x4x5x5xf32> loc("y_dilation")
// CHECK-NEXT: %y = "top.Conv"(%x, %0, %none) {kernel_shape = [5 : i64, 5 : i64], strides = [1 : i64, 1 : i64], pads = [0 : i64, 0 : i64, 0 : i64, 0 : i64], dilations = [8 : i64, 8 : i64], group = 1 : i64{{.*}} -> tensor<1x8x2x2xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<1x8x2x2xf32>

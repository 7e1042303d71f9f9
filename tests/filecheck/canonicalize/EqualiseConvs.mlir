// RUN: tpusim opt -p 'canonicalize{also=weight_equalization}' %s | filecheck %s
//
// On request: the filters of two Convs in a row are scaled so that their ranges agree channel by channel; here by 2
// and 1/2.
// WEIGHT filter = 4
// WEIGHT filter2 = 1

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<1x4x6x6xf32>) -> tensor<1x4x2x2xf32> {
    %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
    %filter = "top.Weight"() : () -> tensor<8x4x3x3xf32> loc("filter")
    %none = "top.None"() : () -> none
    %a = "top.Conv"(%x, %filter, %none) {kernel_shape = [3, 3], strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1], group = 1} : (tensor<1x4x6x6xf32>, tensor<8x4x3x3xf32>, none) -> tensor<1x8x4x4xf32> loc("a")
    %filter2 = "top.Weight"() : () -> tensor<4x8x3x3xf32> loc("filter2")
    %y = "top.Conv"(%a, %filter2, %none) {kernel_shape = [3, 3], strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1], group = 1} : (tensor<1x8x4x4xf32>, tensor<4x8x3x3xf32>, none) -> tensor<1x4x2x2xf32> loc("y")
    func.return %y : tensor<1x4x2x2xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
// CHECK-NEXT: %none = "top.None"() {{.*}} -> none
// CHECK-NEXT: %0 = "top.Weight"() : () -> tensor<8x4x3x3xf32> loc("a_equalised_filter")
// CHECK-NEXT: %a = "top.Conv"(%x, %0, %none) {kernel_shape = [3 : i64, 3 : i64], strides = [1 : i64, 1 : i64], pads = [0 : i64, 0 : i64, 0 : i64, 0 : i64], dilations = [1 : i64, 1 : i64], group = 1 : i64{{.*}} -> tensor<1x8x4x4xf32> loc("a")
// CHECK-NEXT: %1 = "top.Weight"() : () -> tensor<4x8x3x3xf32> loc("y_equalised_filter")
// CHECK-NEXT: %y = "top.Conv"(%a, %1, %none) {kernel_shape = [3 : i64, 3 : i64], strides = [1 : i64, 1 : i64], pads = [0 : i64, 0 : i64, 0 : i64, 0 : i64], dilations = [1 : i64, 1 : i64], group = 1 : i64{{.*}} -> tensor<1x4x2x2xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<1x4x2x2xf32>

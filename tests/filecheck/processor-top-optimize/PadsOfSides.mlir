// RUN: tpusim opt -p 'processor-assign{chip=cv183x mode=BF16},processor-top-optimize' %s | filecheck %s
//
// Padding of a Conv above 15 becomes a Pad.
// WEIGHT filter = 1 2 3

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<1x4x6x6xf32>) -> tensor<1x4x46x46xf32> {
    %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
    %filter = "top.Weight"() : () -> tensor<4x4x1x1xf32> loc("filter")
    %none = "top.None"() : () -> none
    %y = "top.Conv"(%x, %filter, %none) {kernel_shape = [1, 1], strides = [1, 1], pads = [20, 20, 20, 20], dilations = [1, 1], group = 1} : (tensor<1x4x6x6xf32>, tensor<4x4x1x1xf32>, none) -> tensor<1x4x46x46xf32> loc("y")
    func.return %y : tensor<1x4x46x46xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
// CHECK-NEXT: %filter = "top.Weight"() : () -> tensor<4x4x1x1xf32> loc("filter")
// CHECK-NEXT: %none = "top.None"() {{.*}} -> none
// CHECK-NEXT: %0 = "top.Pad"(%x) {paddings = [0 : i64, 0 : i64, 20 : i64, 20 : i64, 0 : i64, 0 : i64, 20 : i64, 20 : i64], mode = "constant", val = 0.000000e+00 : f64}{{.*}} -> tensor<1x4x46x46xf32> loc("y_pad")
// CHECK-NEXT: %y = "top.Conv"(%0, %filter, %none) {kernel_shape = [1 : i64, 1 : i64], strides = [1 : i64, 1 : i64], pads = [0 : i64, 0 : i64, 0 : i64, 0 : i64], dilations = [1 : i64, 1 : i64], group = 1 : i64{{.*}} -> tensor<1x4x46x46xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<1x4x46x46xf32>

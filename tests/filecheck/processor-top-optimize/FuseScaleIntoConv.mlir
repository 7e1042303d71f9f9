// RUN: tpusim opt -p 'processor-assign{chip=bm1684x mode=F32},processor-top-optimize' %s | filecheck %s
//
// A Scale after a Conv goes into its filter and bias.
// WEIGHT pointwise = 1 2 3
// WEIGHT y_scale = 1 2 3 4
// WEIGHT y_scale_bias = 0

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> {
    %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
    %pointwise = "top.Weight"() : () -> tensor<4x4x1x1xf32> loc("pointwise")
    %none = "top.None"() : () -> none
    %a = "top.Conv"(%x, %pointwise, %none) {kernel_shape = [1, 1], strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1], group = 1} : (tensor<1x4x6x6xf32>, tensor<4x4x1x1xf32>, none) -> tensor<1x4x6x6xf32> loc("a")
    %y_scale = "top.Weight"() : () -> tensor<4xf32> loc("y_scale")
    %y_scale_bias = "top.Weight"() : () -> tensor<4xf32> loc("y_scale_bias")
    %y = "top.Scale"(%a, %y_scale, %y_scale_bias) : (tensor<1x4x6x6xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<1x4x6x6xf32> loc("y")
    func.return %y : tensor<1x4x6x6xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
// CHECK-NEXT: %pointwise = "top.Weight"() : () -> tensor<4x4x1x1xf32> loc("pointwise")
// CHECK-NEXT: %none = "top.None"() {{.*}} -> none
// CHECK-NEXT: %0 = "top.Weight"() : () -> tensor<4x4x1x1xf32> loc("y_filter")
// CHECK-NEXT: %1 = "top.Weight"() : () -> tensor<4xf32> loc("y_bias")
// CHECK-NEXT: %a = "top.Conv"(%x, %0, %1) {kernel_shape = [1 : i64, 1 : i64], strides = [1 : i64, 1 : i64], pads = [0 : i64, 0 : i64, 0 : i64, 0 : i64], dilations = [1 : i64, 1 : i64], group = 1 : i64{{.*}} -> tensor<1x4x6x6xf32> loc("y")
// CHECK-NEXT: %y_scale = "top.Weight"() : () -> tensor<4xf32> loc("y_scale")
// CHECK-NEXT: %y_scale_bias = "top.Weight"() : () -> tensor<4xf32> loc("y_scale_bias")
// CHECK-NEXT: func.return %a : tensor<1x4x6x6xf32>

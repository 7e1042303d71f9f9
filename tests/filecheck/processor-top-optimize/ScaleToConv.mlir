// RUN: tpusim opt -p 'processor-assign{chip=bm1684x mode=F32},processor-top-optimize' %s | filecheck %s
//
// A Scale becomes a depthwise Conv with a kernel of 1x1.
// WEIGHT y_scale = 1 2 3 4
// WEIGHT y_scale_bias = 0

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> {
    %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
    %y_scale = "top.Weight"() : () -> tensor<4xf32> loc("y_scale")
    %y_scale_bias = "top.Weight"() : () -> tensor<4xf32> loc("y_scale_bias")
    %y = "top.Scale"(%x, %y_scale, %y_scale_bias) : (tensor<1x4x6x6xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<1x4x6x6xf32> loc("y")
    func.return %y : tensor<1x4x6x6xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
// CHECK-NEXT: %y_scale = "top.Weight"() : () -> tensor<4xf32> loc("y_scale")
// CHECK-NEXT: %y_scale_bias = "top.Weight"() : () -> tensor<4xf32> loc("y_scale_bias")
// CHECK-NEXT: %0 = "top.Weight"() : () -> tensor<4x1x1x1xf32> loc("y_filter")
// CHECK-NEXT: %1 = "top.Weight"() : () -> tensor<4xf32> loc("y_bias")
// CHECK-NEXT: %y = "top.Conv"(%x, %0, %1) {kernel_shape = [1 : i64, 1 : i64], strides = [1 : i64, 1 : i64], pads = [0 : i64, 0 : i64, 0 : i64, 0 : i64], dilations = [1 : i64, 1 : i64], group = 4 : i64{{.*}} -> tensor<1x4x6x6xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<1x4x6x6xf32>

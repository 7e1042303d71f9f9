// RUN: tpusim opt -p 'processor-tpu-optimize' %s | filecheck %s
//
// Padding of a Conv2D above 15 becomes Pads of at most 15.
// WEIGHT filter = 1 2 3

module attributes {module.state = "TPU_LOWERED", module.chip = "bm1684x", module.mode = "f16", module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<1x4x6x6xf32>) -> tensor<1x4x46x46xf32> {
    %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
    %xy_f16 = "tpu.Cast"(%x) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf16> loc("xy_f16")
    %filter = "top.Weight"() : () -> tensor<4x4x1x1xf16> loc("filter")
    %none = "top.None"() : () -> none
    %y = "tpu.Conv2D"(%xy_f16, %filter, %none) {kernel_shape = [1, 1], strides = [1, 1], pads = [20, 20, 20, 20], dilations = [1, 1], group = 1} : (tensor<1x4x6x6xf16>, tensor<4x4x1x1xf16>, none) -> tensor<1x4x46x46xf16> loc("y")
    %y_f32 = "tpu.Cast"(%y) : (tensor<1x4x46x46xf16>) -> tensor<1x4x46x46xf32> loc("y_f32")
    func.return %y_f32 : tensor<1x4x46x46xf32>
  }
}

// CHECK:      %0 = "top.None"() {{.*}} -> none
// CHECK-NEXT: %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
// CHECK-NEXT: %xy_f16 = "tpu.Cast"(%x) {{.*}} -> tensor<1x4x6x6xf16> loc("xy_f16")
// CHECK-NEXT: %filter = "top.Weight"() : () -> tensor<4x4x1x1xf16> loc("filter")
// CHECK-NEXT: %none = "top.None"() {{.*}} -> none
// CHECK-NEXT: %1 = "tpu.Pad"(%xy_f16, %0, %0, %0) {paddings = [0 : i64, 0 : i64, 15 : i64, 15 : i64, 0 : i64, 0 : i64, 15 : i64, 15 : i64], mode = #tpu<Pad_Mode constant>, val = 0.000000e+00 : f64}{{.*}} -> tensor<1x4x36x36xf16> loc("y$pad0")
// CHECK-NEXT: %y = "tpu.Conv2D"(%1, %filter, %none) {kernel_shape = [1 : i64, 1 : i64], strides = [1 : i64, 1 : i64], pads = [5 : i64, 5 : i64, 5 : i64, 5 : i64], dilations = [1 : i64, 1 : i64], group = 1 : i64{{.*}} -> tensor<1x4x46x46xf16> loc("y")
// CHECK-NEXT: %y_f32 = "tpu.Cast"(%y) {{.*}} -> tensor<1x4x46x46xf32> loc("y_f32")
// CHECK-NEXT: func.return %y_f32 : tensor<1x4x46x46xf32>

// RUN: tpusim opt -p 'weight-reorder' %s | filecheck %s
//
// Constants get the layouts that the chip reads: the filter of a Conv2D has its input channels in the lanes.
// WEIGHT filter = 1 2 3
// WEIGHT bias = 1 2 3

module attributes {module.state = "TPU_LOWERED", module.chip = "bm1684x", module.mode = "f16", module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<1x4x6x6xf32>) -> tensor<1x8x4x4xf32> {
    %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
    %xy_f16 = "tpu.Cast"(%x) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf16> loc("xy_f16")
    %filter = "top.Weight"() : () -> tensor<8x4x3x3xf16> loc("filter")
    %bias = "top.Weight"() : () -> tensor<8xf32> loc("bias")
    %y = "tpu.Conv2D"(%xy_f16, %filter, %bias) {kernel_shape = [3, 3], strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1], group = 1, relu_limit = -1.000000e+00 : f64} : (tensor<1x4x6x6xf16>, tensor<8x4x3x3xf16>, tensor<8xf32>) -> tensor<1x8x4x4xf16> loc("y")
    %y_f32 = "tpu.Cast"(%y) : (tensor<1x8x4x4xf16>) -> tensor<1x8x4x4xf32> loc("y_f32")
    func.return %y_f32 : tensor<1x8x4x4xf32>
  }
}

// CHECK:      module.chip = "bm1684x", module.mode = "f16", module.state = "TPU_REORDERED"
// CHECK:      %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
// CHECK-NEXT: %xy_f16 = "tpu.Cast"(%x) {{.*}} -> tensor<1x4x6x6xf16> loc("xy_f16")
// CHECK-NEXT: %0 = "top.Weight"() : () -> tensor<1x8x1x96xf16> loc("filter_packed")
// CHECK-NEXT: %1 = "top.Weight"() : () -> tensor<1x8x1x1xf32> loc("filter_bias")
// CHECK-NEXT: %y = "tpu.Conv2D"(%xy_f16, %0, %1) {kernel_shape = [3 : i64, 3 : i64], strides = [1 : i64, 1 : i64], pads = [0 : i64, 0 : i64, 0 : i64, 0 : i64], dilations = [1 : i64, 1 : i64], group = 1 : i64, {{.*}}, with_bias = true, use_3ic_optimize = 17 : i64, tpusim.filter_packed = true, tpusim.filter_packing = 32 : i64}{{.*}} -> tensor<1x8x4x4xf16> loc("y")
// CHECK-NEXT: %y_f32 = "tpu.Cast"(%y) {{.*}} -> tensor<1x8x4x4xf32> loc("y_f32")
// CHECK-NEXT: func.return %y_f32 : tensor<1x8x4x4xf32>

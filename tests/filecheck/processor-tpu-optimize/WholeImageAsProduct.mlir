// RUN: tpusim opt -p 'processor-tpu-optimize' %s | filecheck %s
//
// A Conv2D whose window is the whole image becomes a MatMul.
// WEIGHT filter = 1 2 3

module attributes {module.state = "TPU_LOWERED", module.chip = "bm1688", module.mode = "bf16", module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<1x4x6x6xf32>) -> tensor<1x8x1x1xf32> {
    %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
    %xy_bf16 = "tpu.Cast"(%x) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xbf16> loc("xy_bf16")
    %filter = "top.Weight"() : () -> tensor<8x4x6x6xbf16> loc("filter")
    %none = "top.None"() : () -> none
    %y = "tpu.Conv2D"(%xy_bf16, %filter, %none) {kernel_shape = [6, 6], strides = [1, 1], pads = [0, 0, 0, 0], relu_limit = -1.000000e+00 : f64} : (tensor<1x4x6x6xbf16>, tensor<8x4x6x6xbf16>, none) -> tensor<1x8x1x1xbf16> loc("y")
    %y_f32 = "tpu.Cast"(%y) : (tensor<1x8x1x1xbf16>) -> tensor<1x8x1x1xf32> loc("y_f32")
    func.return %y_f32 : tensor<1x8x1x1xf32>
  }
}

// CHECK:      %0 = "top.None"() {{.*}} -> none
// CHECK-NEXT: %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
// CHECK-NEXT: %xy_bf16 = "tpu.Cast"(%x) {{.*}} -> tensor<1x4x6x6xbf16> loc("xy_bf16")
// CHECK-NEXT: %none = "top.None"() {{.*}} -> none
// CHECK-NEXT: %y = "top.Weight"() : () -> tensor<1x8x144xbf16> loc("y_matrix")
// CHECK-NEXT: %y_1 = "tpu.Reshape"(%xy_bf16) {shape = [1 : i64, 1 : i64, 144 : i64]}{{.*}} -> tensor<1x1x144xbf16> loc("y_rows")
// CHECK-NEXT: %y_2 = "tpu.MatMul"(%y_1, %y, %none, %0, %0) {{.*}}, left_transpose = false, right_transpose = true}{{.*}} -> tensor<1x1x8xbf16> loc("y_conv2matmul")
// CHECK-NEXT: %y_3 = "tpu.Reshape"(%y_2) {shape = [1 : i64, 8 : i64, 1 : i64, 1 : i64]}{{.*}} -> tensor<1x8x1x1xbf16> loc("y")
// CHECK-NEXT: %y_f32 = "tpu.Cast"(%y_3) {{.*}} -> tensor<1x8x1x1xf32> loc("y_f32")
// CHECK-NEXT: func.return %y_f32 : tensor<1x8x1x1xf32>

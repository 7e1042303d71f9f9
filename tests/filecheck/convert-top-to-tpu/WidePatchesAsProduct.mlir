// RUN: tpusim opt -p 'convert-top-to-tpu{chip=cv183x mode=BF16}' %s | filecheck %s
//
// A Conv whose windows lie side by side and are larger than 15 in both directions becomes a MatMul with a row for
// each window.
// WEIGHT filter = 1 2 3

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<1x4x32x32xf32>) -> tensor<1x4x2x2xf32> {
    %x = "top.Input"(%in) : (tensor<1x4x32x32xf32>) -> tensor<1x4x32x32xf32> loc("x")
    %filter = "top.Weight"() : () -> tensor<4x4x16x16xf32> loc("filter")
    %none = "top.None"() : () -> none
    %y = "top.Conv"(%x, %filter, %none) {kernel_shape = [16, 16], strides = [16, 16], pads = [0, 0, 0, 0]} : (tensor<1x4x32x32xf32>, tensor<4x4x16x16xf32>, none) -> tensor<1x4x2x2xf32> loc("y")
    func.return %y : tensor<1x4x2x2xf32>
  }
}

// CHECK:      %1 = "top.Input"(%0) : (tensor<1x4x32x32xf32>) -> tensor<1x4x32x32xf32> loc("x")
// CHECK-NEXT: %2 = "tpu.Cast"(%1) {{.*}} -> tensor<1x4x32x32xbf16> loc("xy_reshape0_bf16")
// CHECK-NEXT: %3 = "tpu.Reshape"(%2) {shape = [1 : i64, 4 : i64, 2 : i64, 16 : i64, 2 : i64, 16 : i64]}{{.*}} -> tensor<1x4x2x16x2x16xbf16> loc("y_reshape0")
// CHECK-NEXT: %4 = "tpu.Permute"(%3) {order = [0 : i64, 1 : i64, 2 : i64, 4 : i64, 3 : i64, 5 : i64]}{{.*}} -> tensor<1x4x2x2x16x16xbf16> loc("y_permute0")
// CHECK-NEXT: %5 = "tpu.Permute"(%4) {order = [0 : i64, 2 : i64, 3 : i64, 1 : i64, 4 : i64, 5 : i64]}{{.*}} -> tensor<1x2x2x4x16x16xbf16> loc("y_permute1")
// CHECK-NEXT: %6 = "tpu.Reshape"(%5) {shape = [1 : i64, 2 : i64, 2 : i64, 1024 : i64]}{{.*}} -> tensor<1x2x2x1024xbf16> loc("y_reshape1")
// CHECK-NEXT: %7 = "top.Weight"() : () -> tensor<1024x4xbf16> loc("y_filter")
// CHECK-NEXT: %8 = "top.None"() {{.*}} -> none
// CHECK-NEXT: %9 = "tpu.MatMul"(%6, %7, %8) {left_transpose = false, right_transpose = false{{.*}} -> tensor<1x2x2x4xbf16> loc("y_matmul")
// CHECK-NEXT: %10 = "tpu.Permute"(%9) {order = [0 : i64, 3 : i64, 1 : i64, 2 : i64]}{{.*}} -> tensor<1x4x2x2xbf16> loc("y")
// CHECK-NEXT: %11 = "tpu.Cast"(%10) {{.*}} -> tensor<1x4x2x2xf32> loc("y_f32")
// CHECK-NEXT: func.return %11 : tensor<1x4x2x2xf32>

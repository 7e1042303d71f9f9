// RUN: tpusim opt -p 'processor-tpu-optimize' %s | filecheck %s
//
// A MatMul of heads reads its operands without the Permutes before it; a Permute after it restores the order of the
// result.

module attributes {module.state = "TPU_LOWERED", module.chip = "bm1684x", module.mode = "f16"} {
  func.func @main(%in1: tensor<1x5x2x8xf32>, %in2: tensor<1x6x2x8xf32>) -> tensor<1x2x5x6xf32> {
    %x = "top.Input"(%in1) : (tensor<1x5x2x8xf32>) -> tensor<1x5x2x8xf32> loc("x")
    %z = "top.Input"(%in2) : (tensor<1x6x2x8xf32>) -> tensor<1x6x2x8xf32> loc("z")
    %xa_f16 = "tpu.Cast"(%x) : (tensor<1x5x2x8xf32>) -> tensor<1x5x2x8xf16> loc("xa_f16")
    %a = "tpu.Permute"(%xa_f16) {order = [0, 2, 1, 3]} : (tensor<1x5x2x8xf16>) -> tensor<1x2x5x8xf16> loc("a")
    %zb0_f16 = "tpu.Cast"(%z) : (tensor<1x6x2x8xf32>) -> tensor<1x6x2x8xf16> loc("zb0_f16")
    %b0 = "tpu.Permute"(%zb0_f16) {order = [0, 2, 3, 1]} : (tensor<1x6x2x8xf16>) -> tensor<1x2x8x6xf16> loc("b0")
    %none = "top.None"() : () -> none
    %y = "tpu.MatMul"(%a, %b0, %none) {left_transpose = false, right_transpose = false, relu_limit = -1.000000e+00 : f64} : (tensor<1x2x5x8xf16>, tensor<1x2x8x6xf16>, none) -> tensor<1x2x5x6xf16> loc("y")
    %y_f32 = "tpu.Cast"(%y) : (tensor<1x2x5x6xf16>) -> tensor<1x2x5x6xf32> loc("y_f32")
    func.return %y_f32 : tensor<1x2x5x6xf32>
  }
}

// CHECK:      %0 = "top.None"() {{.*}} -> none
// CHECK-NEXT: %x = "top.Input"(%in1) : (tensor<1x5x2x8xf32>) -> tensor<1x5x2x8xf32> loc("x")
// CHECK-NEXT: %z = "top.Input"(%in2) : (tensor<1x6x2x8xf32>) -> tensor<1x6x2x8xf32> loc("z")
// CHECK-NEXT: %xa_f16 = "tpu.Cast"(%x) {{.*}} -> tensor<1x5x2x8xf16> loc("xa_f16")
// CHECK-NEXT: %zb0_f16 = "tpu.Cast"(%z) {{.*}} -> tensor<1x6x2x8xf16> loc("zb0_f16")
// CHECK-NEXT: %none = "top.None"() {{.*}} -> none
// CHECK-NEXT: %y = "tpu.MatMul"(%xa_f16, %zb0_f16, %none, %0, %0) {left_transpose = false, right_transpose = true, {{.*}}, tpusim.heads_inside = true, hdim_is_batch = true}{{.*}} -> tensor<1x5x2x6xf16> loc("y_hdim_is_batch")
// CHECK-NEXT: %y_f32 = "tpu.Cast"(%y) {{.*}} -> tensor<1x5x2x6xf32> loc("y_f32_hdim_is_batch")
// CHECK-NEXT: %y_f32_1 = "tpu.Permute"(%y_f32, %0) {order = [0 : i64, 2 : i64, 1 : i64, 3 : i64]}{{.*}} -> tensor<1x2x5x6xf32> loc("y_f32")
// CHECK-NEXT: func.return %y_f32_1 : tensor<1x2x5x6xf32>

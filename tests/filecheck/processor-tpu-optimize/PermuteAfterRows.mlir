// RUN: tpusim opt -p 'processor-tpu-optimize' %s | filecheck %s
//
// A Permute of heads moves below a MulConst, to an op or store that can absorb it.

module attributes {module.state = "TPU_LOWERED", module.chip = "bm1684x", module.mode = "f16"} {
  func.func @main(%in: tensor<1x5x2x8xf32>) -> tensor<1x2x5x8xf32> {
    %x = "top.Input"(%in) : (tensor<1x5x2x8xf32>) -> tensor<1x5x2x8xf32> loc("x")
    %xa_f16 = "tpu.Cast"(%x) : (tensor<1x5x2x8xf32>) -> tensor<1x5x2x8xf16> loc("xa_f16")
    %a = "tpu.Permute"(%xa_f16) {order = [0, 2, 1, 3]} : (tensor<1x5x2x8xf16>) -> tensor<1x2x5x8xf16> loc("a")
    %y = "tpu.MulConst"(%a) {const_val = 5.000000e-01 : f64} : (tensor<1x2x5x8xf16>) -> tensor<1x2x5x8xf16> loc("y")
    %y_f32 = "tpu.Cast"(%y) : (tensor<1x2x5x8xf16>) -> tensor<1x2x5x8xf32> loc("y_f32")
    func.return %y_f32 : tensor<1x2x5x8xf32>
  }
}

// CHECK:      %0 = "top.None"() {{.*}} -> none
// CHECK-NEXT: %x = "top.Input"(%in) : (tensor<1x5x2x8xf32>) -> tensor<1x5x2x8xf32> loc("x")
// CHECK-NEXT: %xa_f16 = "tpu.Cast"(%x) {{.*}} -> tensor<1x5x2x8xf16> loc("xa_f16")
// CHECK-NEXT: %y = "tpu.MulConst"(%xa_f16) {const_val = 5.000000e-01 : f64{{.*}} -> tensor<1x5x2x8xf16> loc("y_hdim_is_batch")
// CHECK-NEXT: %y_f32 = "tpu.Cast"(%y) {{.*}} -> tensor<1x5x2x8xf32> loc("y_f32_hdim_is_batch")
// CHECK-NEXT: %y_f32_1 = "tpu.Permute"(%y_f32, %0) {order = [0 : i64, 2 : i64, 1 : i64, 3 : i64]}{{.*}} -> tensor<1x2x5x8xf32> loc("y_f32")
// CHECK-NEXT: func.return %y_f32_1 : tensor<1x2x5x8xf32>

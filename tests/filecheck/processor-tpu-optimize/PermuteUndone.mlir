// RUN: tpusim opt -p 'processor-tpu-optimize' %s | filecheck %s
//
// A Permute and the Permute that undoes it are removed.

module attributes {module.state = "TPU_LOWERED", module.chip = "bm1684x", module.mode = "f16"} {
  func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2x4x6xf32> {
    %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
    %xa_f16 = "tpu.Cast"(%x) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf16> loc("xa_f16")
    %a = "tpu.Permute"(%xa_f16) {order = [0, 2, 1]} : (tensor<2x4x6xf16>) -> tensor<2x6x4xf16> loc("a")
    %b0 = "tpu.Permute"(%a) {order = [0, 2, 1]} : (tensor<2x6x4xf16>) -> tensor<2x4x6xf16> loc("b0")
    %y = "tpu.Mul"(%b0, %b0) : (tensor<2x4x6xf16>, tensor<2x4x6xf16>) -> tensor<2x4x6xf16> loc("y")
    %y_f32 = "tpu.Cast"(%y) : (tensor<2x4x6xf16>) -> tensor<2x4x6xf32> loc("y_f32")
    func.return %y_f32 : tensor<2x4x6xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %xa_f16 = "tpu.Cast"(%x) {{.*}} -> tensor<2x4x6xf16> loc("b0")
// CHECK-NEXT: %y = "tpu.Mul"(%xa_f16, %xa_f16) {{.*}} -> tensor<2x4x6xf16> loc("y")
// CHECK-NEXT: %y_f32 = "tpu.Cast"(%y) {{.*}} -> tensor<2x4x6xf32> loc("y_f32")
// CHECK-NEXT: func.return %y_f32 : tensor<2x4x6xf32>

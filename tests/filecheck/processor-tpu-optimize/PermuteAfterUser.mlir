// RUN: tpusim opt -p 'processor-tpu-optimize' %s | filecheck %s
//
// A Permute of heads moves below the elementwise ops after it.

module attributes {module.state = "TPU_LOWERED", module.chip = "bm1684", module.mode = "f32"} {
  func.func @main(%in: tensor<1x5x2x8xf32>) -> tensor<1x2x5x8xf32> {
    %x = "top.Input"(%in) : (tensor<1x5x2x8xf32>) -> tensor<1x5x2x8xf32> loc("x")
    %a = "tpu.Permute"(%x) {order = [0, 2, 1, 3]} : (tensor<1x5x2x8xf32>) -> tensor<1x2x5x8xf32> loc("a")
    %b0 = "tpu.Active"(%a) {mode = "SIGMOID", coeffs = []} : (tensor<1x2x5x8xf32>) -> tensor<1x2x5x8xf32> loc("b0")
    %y = "tpu.Active"(%b0) {mode = "SIN", coeffs = []} : (tensor<1x2x5x8xf32>) -> tensor<1x2x5x8xf32> loc("y")
    func.return %y : tensor<1x2x5x8xf32>
  }
}

// CHECK:      %0 = "top.None"() {{.*}} -> none
// CHECK-NEXT: %x = "top.Input"(%in) : (tensor<1x5x2x8xf32>) -> tensor<1x5x2x8xf32> loc("x")
// CHECK-NEXT: %b0 = "tpu.Active"(%x) {mode = #tpu<active_mode SIGMOID>, coeffs = []}{{.*}} -> tensor<1x5x2x8xf32> loc("b0_hdim_is_batch")
// CHECK-NEXT: %y = "tpu.Active"(%b0) {mode = #tpu<active_mode SIN>, coeffs = []}{{.*}} -> tensor<1x5x2x8xf32> loc("y_hdim_is_batch")
// CHECK-NEXT: %y_1 = "tpu.Permute"(%y, %0) {order = [0 : i64, 2 : i64, 1 : i64, 3 : i64]}{{.*}} -> tensor<1x2x5x8xf32> loc("y")
// CHECK-NEXT: func.return %y_1 : tensor<1x2x5x8xf32>

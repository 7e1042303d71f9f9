// RUN: tpusim opt -p 'processor-tpu-optimize' %s | filecheck %s
//
// The Permute of heads moves below the sum with a constant mask, which is turned instead.
// WEIGHT m = 0 1 2 3

module attributes {module.state = "TPU_LOWERED", module.chip = "bm1684x", module.mode = "f16", module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<1x5x2x4xf32>) -> tensor<1x2x5x4xf32> {
    %x = "top.Input"(%in) : (tensor<1x5x2x4xf32>) -> tensor<1x5x2x4xf32> loc("x")
    %c = "tpu.Cast"(%x) : (tensor<1x5x2x4xf32>) -> tensor<1x5x2x4xf16> loc("c")
    %t = "tpu.Permute"(%c) {order = [0, 2, 1, 3]} : (tensor<1x5x2x4xf16>) -> tensor<1x2x5x4xf16> loc("t")
    %m = "top.Weight"() : () -> tensor<1x1x5x4xf16> loc("m")
    %s = "tpu.Add"(%t, %m) : (tensor<1x2x5x4xf16>, tensor<1x1x5x4xf16>) -> tensor<1x2x5x4xf16> loc("s")
    %y = "tpu.Cast"(%s) : (tensor<1x2x5x4xf16>) -> tensor<1x2x5x4xf32> loc("y")
    func.return %y : tensor<1x2x5x4xf32>
  }
}

// CHECK:      %0 = "top.None"() {{.*}} -> none
// CHECK:      %c = "tpu.Cast"(%x) {{.*}} -> tensor<1x5x2x4xf16> loc("c")
// CHECK-NEXT: %1 = "top.Weight"() : () -> tensor<1x5x1x4xf16> loc("s_transposed_add_weight")
// CHECK-NEXT: %s = "tpu.Add"(%c, %1) {{.*}} -> tensor<1x5x2x4xf16> loc("s__trans")
// CHECK-NEXT: %y = "tpu.Cast"(%s) {{.*}} -> tensor<1x5x2x4xf32> loc("y_hdim_is_batch")
// CHECK-NEXT: %y_1 = "tpu.Permute"(%y, %0) {order = [0 : i64, 2 : i64, 1 : i64, 3 : i64]}{{.*}} -> tensor<1x2x5x4xf32> loc("y")

// RUN: tpusim opt -p 'processor-tpu-optimize' %s | filecheck %s
//
// The Permute of keys moves below the product with a number, so that the MatMul takes it in.

module attributes {module.state = "TPU_LOWERED", module.chip = "bm1684x", module.mode = "f16"} {
  func.func @main(%in: tensor<1x5x2x8xf32>) -> tensor<1x5x2x5xf32> {
    %x = "top.Input"(%in) : (tensor<1x5x2x8xf32>) -> tensor<1x5x2x8xf32> loc("x")
    %c = "tpu.Cast"(%x) : (tensor<1x5x2x8xf32>) -> tensor<1x5x2x8xf16> loc("c")
    %q = "tpu.Permute"(%c) {order = [0, 2, 1, 3]} : (tensor<1x5x2x8xf16>) -> tensor<1x2x5x8xf16> loc("q")
    %t = "tpu.Permute"(%c) {order = [0, 2, 3, 1]} : (tensor<1x5x2x8xf16>) -> tensor<1x2x8x5xf16> loc("t")
    %k = "tpu.MulConst"(%t) {const_val = 5.000000e-01 : f64} : (tensor<1x2x8x5xf16>) -> tensor<1x2x8x5xf16> loc("k")
    %n = "top.None"() : () -> none
    %s = "tpu.MatMul"(%q, %k, %n) : (tensor<1x2x5x8xf16>, tensor<1x2x8x5xf16>, none) -> tensor<1x2x5x5xf16> loc("s")
    %o = "tpu.Permute"(%s) {order = [0, 2, 1, 3]} : (tensor<1x2x5x5xf16>) -> tensor<1x5x2x5xf16> loc("o")
    %y = "tpu.Cast"(%o) : (tensor<1x5x2x5xf16>) -> tensor<1x5x2x5xf32> loc("y")
    func.return %y : tensor<1x5x2x5xf32>
  }
}

// CHECK:      %0 = "top.None"() {{.*}} -> none
// CHECK:      %c = "tpu.Cast"(%x) {{.*}} -> tensor<1x5x2x8xf16> loc("c")
// CHECK-NEXT: %k = "tpu.MulConst"(%c) {const_val = 5.000000e-01 : f64{{.*}} -> tensor<1x5x2x8xf16> loc("k_trans")
// CHECK-NEXT: %n = "top.None"() : () -> none
// CHECK-NEXT: %s = "tpu.MatMul"(%c, %k, %n, %0, %0) {{.*}}tpusim.heads_inside = true{{.*}}right_transpose = true{{.*}} -> tensor<1x5x2x5xf16> loc("o")
// CHECK-NEXT: %y = "tpu.Cast"(%s) {{.*}} -> tensor<1x5x2x5xf32> loc("y")

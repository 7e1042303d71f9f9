// RUN: tpusim opt -p 'search-groups,combine-timesteps' %s | filecheck %s
//
// Rows of a group merge: the load of the first row and two ops run at the same time.

module attributes {module.state = "TPU_REORDERED", module.chip = "bm1684x", module.mode = "f32"} {
  func.func @main(%x_in: tensor<1x8x16x16xf32>) -> tensor<1x8x16x16xf32> {
    %x = "top.Input"(%x_in) : (tensor<1x8x16x16xf32>) -> tensor<1x8x16x16xf32> loc("x")
    %p = "tpu.Relu"(%x) {relu_limit = -1.000000e+00 : f64} : (tensor<1x8x16x16xf32>) -> tensor<1x8x16x16xf32> loc("p")
    %q = "tpu.Relu"(%p) {relu_limit = -1.000000e+00 : f64} : (tensor<1x8x16x16xf32>) -> tensor<1x8x16x16xf32> loc("q")
    %y = "tpu.Relu"(%q) {relu_limit = -1.000000e+00 : f64} : (tensor<1x8x16x16xf32>) -> tensor<1x8x16x16xf32> loc("y")
    func.return %y : tensor<1x8x16x16xf32>
  }
}

// CHECK:      %0 = "top.None"() {{.*}} -> none
// CHECK:      %1 = "tpu.Group"(%x) ({
// CHECK-NEXT: %2 = "tpu.Load"(%x)
// CHECK-NEXT: %p = "tpu.Relu"(%2)
// CHECK-NEXT: %q = "tpu.Relu"(%p)
// CHECK-NEXT: %y = "tpu.Relu"(%q)
// CHECK-NEXT: %3 = "tpu.Store"(%y, %0)
// CHECK-NEXT: "tpu.Yield"(%3)
// CHECK-NEXT: }) {{.*}}flow = [-1 : i64, 1 : i64, 2 : i64, 4 : i64, -2 : i64, 3 : i64, 0 : i64]}

// RUN: tpusim opt -p 'search-groups' %s | filecheck %s
//
// Ops become layer groups with sections, rows and local addresses, before any refinement.
// WEIGHT w_packed = 1 2 3

module attributes {module.state = "TPU_REORDERED", module.chip = "bm1684x", module.mode = "f32", module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<1x4x6x6xf32>) -> tensor<1x8x4x4xf32> {
    %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
    %none = "top.None"() : () -> none
    %w_packed = "top.Weight"() : () -> tensor<1x8x1x36xf32> loc("w_packed")
    %a = "tpu.Conv2D"(%x, %w_packed, %none) {kernel_shape = [3, 3], strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1], group = 1, relu_limit = -1.000000e+00 : f64, filter_packed = true, filter_packing = 1, with_bias = false} : (tensor<1x4x6x6xf32>, tensor<1x8x1x36xf32>, none) -> tensor<1x8x4x4xf32> loc("a")
    %y = "tpu.Active"(%a) {mode = "SIGMOID", coeffs = []} : (tensor<1x8x4x4xf32>) -> tensor<1x8x4x4xf32> loc("y")
    func.return %y : tensor<1x8x4x4xf32>
  }
}

// CHECK:      module.chip = "bm1684x"{{.*}}module.mode = "f32"{{.*}}module.state = "TPU_DIVIDED"
// CHECK:      %0 = "top.None"() {{.*}} -> none
// CHECK:      %none = "top.None"() {{.*}} -> none
// CHECK:      %1 = "tpu.Group"(%x) ({
// CHECK-NEXT: %2 = "tpu.Load"(%x) {{.*}}out_addr = 0,{{.*}} loc("load_x")
// CHECK-NEXT: %3 = "tpu.Load"(%w_packed) {{.*}}out_addr = 16384,{{.*}} loc("load_w_packed")
// CHECK-NEXT: %a = "tpu.Conv2D"(%2, %3, %none) {{.*}}out_addr = 32768,{{.*}} loc("a")
// CHECK-NEXT: %y = "tpu.Active"(%a) {{.*}}out_addr = 65536,{{.*}} loc("y")
// CHECK-NEXT: %4 = "tpu.Store"(%y, %0) {{.*}}out_addr = 65536,{{.*}} loc("store_y")
// CHECK-NEXT: "tpu.Yield"(%4)
// CHECK-NEXT: }) {nsecs = 1 : i64, {{.*}}flow = [-1 : i64, 2 : i64, 4 : i64, -2 : i64, 3 : i64, 0 : i64, 1 : i64]}

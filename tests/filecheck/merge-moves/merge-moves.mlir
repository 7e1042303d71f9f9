// RUN: tpusim opt -p 'search-groups,merge-moves' %s | filecheck %s
//
// A group loads the operand of a Permute in the order of its result, in place of the Permute.
// WEIGHT w = 1 2 3

module attributes {module.state = "TPU_REORDERED", module.chip = "bm1684x", module.mode = "f32", module.weight_file = "weights.npz"} {
  func.func @main(%x_in: tensor<1x16x8x16xf32>) -> tensor<1x8x16x16xf32> {
    %x = "top.Input"(%x_in) : (tensor<1x16x8x16xf32>) -> tensor<1x16x8x16xf32> loc("x")
    %none = "top.None"() : () -> none
    %w = "top.Weight"() : () -> tensor<1x8x1x72xf32> loc("w")
    %p = "tpu.Permute"(%x) {order = [0, 2, 1, 3]} : (tensor<1x16x8x16xf32>) -> tensor<1x8x16x16xf32> loc("p")
    %a = "tpu.Conv2D"(%p, %w, %none) {kernel_shape = [3, 3], strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1], group = 1, relu_limit = -1.000000e+00 : f64, filter_packed = true, filter_packing = 1, with_bias = false} : (tensor<1x8x16x16xf32>, tensor<1x8x1x72xf32>, none) -> tensor<1x8x16x16xf32> loc("a")
    %y = "tpu.Add"(%a, %a) {do_relu = false, relu_limit = -1.000000e+00 : f64, coeff = [1.0, 1.0]} : (tensor<1x8x16x16xf32>, tensor<1x8x16x16xf32>) -> tensor<1x8x16x16xf32> loc("y")
    func.return %y : tensor<1x8x16x16xf32>
  }
}

// CHECK:      %0 = "top.None"() {{.*}} -> none
// CHECK:      %none = "top.None"() {{.*}} -> none
// CHECK-NEXT: %w = "top.Weight"()
// CHECK-NEXT: %1 = "tpu.Group"(%x) ({
// CHECK-NEXT: %2 = "tpu.Load"(%x) {{.*}}indexing_map_s2l{{.*}}moved = ["p"]{{.*}} : (tensor<1x16x8x16xf32>) -> tensor<1x8x16x16xf32> loc("load_p")
// CHECK-NOT:  tpu.Permute
// CHECK:      func.return %1

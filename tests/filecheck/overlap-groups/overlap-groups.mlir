// RUN: tpusim opt -p 'search-groups{opt=off},overlap-groups' %s | filecheck %s
//
// The constant of the second group is loaded while the first group computes.
// WEIGHT w = 1 2 3

module attributes {module.state = "TPU_REORDERED", module.chip = "bm1684x", module.mode = "f32", module.weight_file = "weights.npz"} {
  func.func @main(%x_in: tensor<1x8x16x16xf32>) -> tensor<1x8x16x16xf32> {
    %x = "top.Input"(%x_in) : (tensor<1x8x16x16xf32>) -> tensor<1x8x16x16xf32> loc("x")
    %none = "top.None"() : () -> none
    %w = "top.Weight"() : () -> tensor<1x8x1x72xf32> loc("w")
    %p = "tpu.Clip"(%x) {min = 0.000000e+00 : f64, max = 6.000000e+00 : f64} : (tensor<1x8x16x16xf32>) -> tensor<1x8x16x16xf32> loc("p")
    %y = "tpu.Conv2D"(%p, %w, %none) {kernel_shape = [3, 3], strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1], group = 1, relu_limit = -1.000000e+00 : f64, filter_packed = true, filter_packing = 1, with_bias = false} : (tensor<1x8x16x16xf32>, tensor<1x8x1x72xf32>, none) -> tensor<1x8x16x16xf32> loc("y")
    func.return %y : tensor<1x8x16x16xf32>
  }
}

// CHECK:      %0 = "top.None"() {{.*}} -> none
// CHECK:      %none = "top.None"() {{.*}} -> none
// CHECK:      %1 = "tpu.Group"(%x) ({
// CHECK:      }) {{.*}}flow = [-1 : i64, 2 : i64, -2 : i64, 1 : i64, -3 : i64, 0 : i64], other_up_overlap_op = [-2 : i64, 1 : i64]}
// CHECK:      %4 = "tpu.Group"(%1) ({
// CHECK:      %6 = "tpu.Load"(%w) {{.*}}id = 1,{{.*}} loc("load_w")
// CHECK:      }) {{.*}}self_up_overlap_op = [1 : i64]}

// RUN: tpusim opt -p 'search-groups{cores=2},choose-cores' %s | filecheck %s
//
// Groups that several cores would not make quicker run on one.
// WEIGHT w_packed = 1 2 3

module attributes {module.state = "TPU_REORDERED", module.chip = "bm1688", module.mode = "f32", module.weight_file = "weights.npz", module.cores = 1 : i64} {
  func.func @main(%in: tensor<1x4x3x3xf32>) -> tensor<1x8x1x1xf32> {
    %x = "top.Input"(%in) : (tensor<1x4x3x3xf32>) -> tensor<1x4x3x3xf32> loc("x")
    %none = "top.None"() : () -> none
    %w_packed = "top.Weight"() : () -> tensor<1x8x1x36xf32> loc("w_packed")
    %a = "tpu.Conv2D"(%x, %w_packed, %none) {kernel_shape = [3, 3], strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1], group = 1, relu_limit = -1.000000e+00 : f64, filter_packed = true, filter_packing = 1, with_bias = false} : (tensor<1x4x3x3xf32>, tensor<1x8x1x36xf32>, none) -> tensor<1x8x1x1xf32> loc("a")
    %y = "tpu.Active"(%a) {mode = "SIGMOID", coeffs = []} : (tensor<1x8x1x1xf32>) -> tensor<1x8x1x1xf32> loc("y")
    func.return %y : tensor<1x8x1x1xf32>
  }
}

// CHECK:      builtin.module attributes {module.chip = "bm1688", module.cores = 1 : i64, module.mode = "f32", module.state = "TPU_DIVIDED", module.weight_file = "weights.npz"} {
// CHECK:      %0 = "top.None"() {{.*}} -> none
// CHECK:      %none = "top.None"() {{.*}} -> none
// CHECK:      %1 = "tpu.Group"(%x) ({

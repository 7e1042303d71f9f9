// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// For a Conv that alone reads the Slices, Depth2Space is by rows, and the filters take the order of the Slices.
// WEIGHT f = 1 2 3 4

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<1x1x6x6xf32>) -> tensor<1x1x3x3xf32> {
    %x = "top.Input"(%in) : (tensor<1x1x6x6xf32>) -> tensor<1x1x6x6xf32> loc("x")
    %none = "top.None"() : () -> none
    %f = "top.Weight"() : () -> tensor<1x4x1x1xf32> loc("f")
    %a0_0 = "top.Slice"(%x) {offset = [0, 0, 0, 0], steps = [1, 1, 2, 2], ends = [1, 1, 6, 6]} : (tensor<1x1x6x6xf32>) -> tensor<1x1x3x3xf32> loc("a0,0")
    %a1_0 = "top.Slice"(%x) {offset = [0, 0, 1, 0], steps = [1, 1, 2, 2], ends = [1, 1, 6, 6]} : (tensor<1x1x6x6xf32>) -> tensor<1x1x3x3xf32> loc("a1,0")
    %a0_1 = "top.Slice"(%x) {offset = [0, 0, 0, 1], steps = [1, 1, 2, 2], ends = [1, 1, 6, 6]} : (tensor<1x1x6x6xf32>) -> tensor<1x1x3x3xf32> loc("a0,1")
    %a1_1 = "top.Slice"(%x) {offset = [0, 0, 1, 1], steps = [1, 1, 2, 2], ends = [1, 1, 6, 6]} : (tensor<1x1x6x6xf32>) -> tensor<1x1x3x3xf32> loc("a1,1")
    %j = "top.Concat"(%a0_0, %a1_0, %a0_1, %a1_1) {axis = 1} : (tensor<1x1x3x3xf32>, tensor<1x1x3x3xf32>, tensor<1x1x3x3xf32>, tensor<1x1x3x3xf32>) -> tensor<1x4x3x3xf32> loc("j")
    %y = "top.Conv"(%j, %f, %none) {kernel_shape = [1, 1], strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1], group = 1 : i64, do_relu = false, relu_limit = -1.000000e+00 : f64} : (tensor<1x4x3x3xf32>, tensor<1x4x1x1xf32>, none) -> tensor<1x1x3x3xf32> loc("y")
    func.return %y : tensor<1x1x3x3xf32>
  }
}

// CHECK:      "top.Depth2Space"(%x) {block_h = 2 : i64, block_w = 2 : i64, is_CRD = false, is_inversed = true, swap_cr = false}{{.*}} loc("j_r_Depth2Space")
// CHECK-NEXT: "top.Weight"() {{.*}} loc("y_filter_S2D")
// CHECK-NEXT: %y{{.*}} = "top.Conv"

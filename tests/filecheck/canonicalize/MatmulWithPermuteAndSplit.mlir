// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// The Slices that divide the result of a MatMul into queries, keys and values move before its Permute, and each gets
// a Permute.
// WEIGHT qkv = 1 2 3

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<1x5x6xf32>) -> (tensor<1x2x5x6xf32>, tensor<1x2x5x6xf32>, tensor<1x2x5x6xf32>) {
    %x = "top.Input"(%in) : (tensor<1x5x6xf32>) -> tensor<1x5x6xf32> loc("x")
    %qkv = "top.Weight"() : () -> tensor<6x36xf32> loc("qkv")
    %none = "top.None"() : () -> none
    %a = "top.MatMul"(%x, %qkv, %none) {left_transpose = false, right_transpose = false} : (tensor<1x5x6xf32>, tensor<6x36xf32>, none) -> tensor<1x5x36xf32> loc("a")
    %b0 = "top.Reshape"(%a) {shape = [1, 5, 3, 2, 6]} : (tensor<1x5x36xf32>) -> tensor<1x5x3x2x6xf32> loc("b0")
    %c0 = "top.Permute"(%b0) {order = [2, 0, 3, 1, 4]} : (tensor<1x5x3x2x6xf32>) -> tensor<3x1x2x5x6xf32> loc("c0")
    %y0_slice = "top.Slice"(%c0) {offset = [0, 0, 0, 0, 0], steps = [1, 1, 1, 1, 1], ends = [1, 1, 2, 5, 6]} : (tensor<3x1x2x5x6xf32>) -> tensor<1x1x2x5x6xf32> loc("y0_slice")
    %y0 = "top.Squeeze"(%y0_slice) {axes = [0]} : (tensor<1x1x2x5x6xf32>) -> tensor<1x2x5x6xf32> loc("y0")
    %y1_slice = "top.Slice"(%c0) {offset = [1, 0, 0, 0, 0], steps = [1, 1, 1, 1, 1], ends = [2, 1, 2, 5, 6]} : (tensor<3x1x2x5x6xf32>) -> tensor<1x1x2x5x6xf32> loc("y1_slice")
    %y1 = "top.Squeeze"(%y1_slice) {axes = [0]} : (tensor<1x1x2x5x6xf32>) -> tensor<1x2x5x6xf32> loc("y1")
    %y2_slice = "top.Slice"(%c0) {offset = [2, 0, 0, 0, 0], steps = [1, 1, 1, 1, 1], ends = [3, 1, 2, 5, 6]} : (tensor<3x1x2x5x6xf32>) -> tensor<1x1x2x5x6xf32> loc("y2_slice")
    %y2 = "top.Squeeze"(%y2_slice) {axes = [0]} : (tensor<1x1x2x5x6xf32>) -> tensor<1x2x5x6xf32> loc("y2")
    func.return %y0, %y1, %y2 : tensor<1x2x5x6xf32>, tensor<1x2x5x6xf32>, tensor<1x2x5x6xf32>
  }
}

// CHECK:      %0 = "top.None"() {{.*}} -> none
// CHECK-NEXT: %x = "top.Input"(%in) : (tensor<1x5x6xf32>) -> tensor<1x5x6xf32> loc("x")
// CHECK-NEXT: %qkv = "top.Weight"() : () -> tensor<6x36xf32> loc("qkv")
// CHECK-NEXT: %none = "top.None"() {{.*}} -> none
// CHECK-NEXT: %a = "top.MatMul"(%x, %qkv, %none) {left_transpose = false, right_transpose = false{{.*}} -> tensor<1x5x36xf32> loc("a")
// CHECK-NEXT: %b0 = "top.Reshape"(%a) {shape = [1 : i64, 5 : i64, 3 : i64, 2 : i64, 6 : i64]}{{.*}} -> tensor<1x5x3x2x6xf32> loc("b0")
// CHECK-NEXT: %1 = "top.Slice"(%b0, %0, %0, %0) {offset = [0 : i64, 0 : i64, 0 : i64, 0 : i64, 0 : i64], steps = [1 : i64, 1 : i64, 1 : i64, 1 : i64, 1 : i64], ends = [1 : i64, 5 : i64, 1 : i64, 2 : i64, 6 : i64]}{{.*}} -> tensor<1x5x1x2x6xf32> loc("y0_slice_r_new")
// CHECK-NEXT: %2 = "top.Squeeze"(%1) {axes = [2 : i64]}{{.*}} -> tensor<1x5x2x6xf32> loc("y0_r_new")
// CHECK-NEXT: %y0 = "top.Permute"(%2) {order = [0 : i64, 2 : i64, 1 : i64, 3 : i64]}{{.*}} -> tensor<1x2x5x6xf32> loc("y0")
// CHECK-NEXT: %3 = "top.Slice"(%b0, %0, %0, %0) {offset = [0 : i64, 0 : i64, 1 : i64, 0 : i64, 0 : i64], steps = [1 : i64, 1 : i64, 1 : i64, 1 : i64, 1 : i64], ends = [1 : i64, 5 : i64, 2 : i64, 2 : i64, 6 : i64]}{{.*}} -> tensor<1x5x1x2x6xf32> loc("y1_slice_r_new")
// CHECK-NEXT: %4 = "top.Squeeze"(%3) {axes = [2 : i64]}{{.*}} -> tensor<1x5x2x6xf32> loc("y1_r_new")
// CHECK-NEXT: %y1 = "top.Permute"(%4) {order = [0 : i64, 2 : i64, 1 : i64, 3 : i64]}{{.*}} -> tensor<1x2x5x6xf32> loc("y1")
// CHECK-NEXT: %5 = "top.Slice"(%b0, %0, %0, %0) {offset = [0 : i64, 0 : i64, 2 : i64, 0 : i64, 0 : i64], steps = [1 : i64, 1 : i64, 1 : i64, 1 : i64, 1 : i64], ends = [1 : i64, 5 : i64, 3 : i64, 2 : i64, 6 : i64]}{{.*}} -> tensor<1x5x1x2x6xf32> loc("y2_slice_r_new")
// CHECK-NEXT: %6 = "top.Squeeze"(%5) {axes = [2 : i64]}{{.*}} -> tensor<1x5x2x6xf32> loc("y2_r_new")
// CHECK-NEXT: %y2 = "top.Permute"(%6) {order = [0 : i64, 2 : i64, 1 : i64, 3 : i64]}{{.*}} -> tensor<1x2x5x6xf32> loc("y2")
// CHECK-NEXT: func.return %y0, %y1, %y2 : tensor<1x2x5x6xf32>, tensor<1x2x5x6xf32>, tensor<1x2x5x6xf32>

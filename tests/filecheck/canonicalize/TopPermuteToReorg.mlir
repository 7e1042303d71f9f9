// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// The Reshape, Permute and Reshape that turn pixels into channels become an inverse Depth2Space.

func.func @main(%in: tensor<1x4x6x6xf32>) -> tensor<1x36x2x2xf32> {
  %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
  %y_part0_Reshape = "top.Reshape"(%x) {shape = [1, 4, 2, 3, 2, 3]} : (tensor<1x4x6x6xf32>) -> tensor<1x4x2x3x2x3xf32> loc("y_part0_Reshape")
  %y_part2_Transpose = "top.Permute"(%y_part0_Reshape) {order = [0, 3, 5, 1, 2, 4]} : (tensor<1x4x2x3x2x3xf32>) -> tensor<1x3x3x4x2x2xf32> loc("y_part2_Transpose")
  %y = "top.Reshape"(%y_part2_Transpose) {shape = [1, 36, 2, 2]} : (tensor<1x3x3x4x2x2xf32>) -> tensor<1x36x2x2xf32> loc("y")
  func.return %y : tensor<1x36x2x2xf32>
}

// CHECK:      %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
// CHECK-NEXT: %y = "top.Depth2Space"(%x) {block_h = 3 : i64, block_w = 3 : i64, is_CRD = false, is_inversed = true, swap_cr = false}{{.*}} -> tensor<1x36x2x2xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<1x36x2x2xf32>

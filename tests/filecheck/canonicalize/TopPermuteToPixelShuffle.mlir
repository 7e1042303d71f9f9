// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// The Reshape, Permute and Reshape that turn channels into pixels become a Depth2Space.

func.func @main(%in: tensor<1x4x6x6xf32>) -> tensor<1x1x12x12xf32> {
  %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
  %y_part0_Reshape = "top.Reshape"(%x) {shape = [1, 1, 2, 2, 6, 6]} : (tensor<1x4x6x6xf32>) -> tensor<1x1x2x2x6x6xf32> loc("y_part0_Reshape")
  %y_part2_Transpose = "top.Permute"(%y_part0_Reshape) {order = [0, 1, 4, 2, 5, 3]} : (tensor<1x1x2x2x6x6xf32>) -> tensor<1x1x6x2x6x2xf32> loc("y_part2_Transpose")
  %y = "top.Reshape"(%y_part2_Transpose) {shape = [1, 1, 12, 12]} : (tensor<1x1x6x2x6x2xf32>) -> tensor<1x1x12x12xf32> loc("y")
  func.return %y : tensor<1x1x12x12xf32>
}

// CHECK:      %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
// CHECK-NEXT: %y = "top.Depth2Space"(%x) {block_h = 2 : i64, block_w = 2 : i64, is_CRD = true, is_inversed = false, swap_cr = false}{{.*}} -> tensor<1x1x12x12xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<1x1x12x12xf32>

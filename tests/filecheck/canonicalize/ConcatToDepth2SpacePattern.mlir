// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// A Concat of the strided Slices that together are the whole image becomes an inverse Depth2Space.

func.func @main(%in: tensor<1x4x6x6xf32>) -> tensor<1x16x3x3xf32> {
  %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
  %a0_0 = "top.Slice"(%x) {offset = [0, 0, 0, 0], steps = [1, 1, 2, 2], ends = [1, 4, 6, 6]} : (tensor<1x4x6x6xf32>) -> tensor<1x4x3x3xf32> loc("a0,0")
  %a1_0 = "top.Slice"(%x) {offset = [0, 0, 1, 0], steps = [1, 1, 2, 2], ends = [1, 4, 6, 6]} : (tensor<1x4x6x6xf32>) -> tensor<1x4x3x3xf32> loc("a1,0")
  %a0_1 = "top.Slice"(%x) {offset = [0, 0, 0, 1], steps = [1, 1, 2, 2], ends = [1, 4, 6, 6]} : (tensor<1x4x6x6xf32>) -> tensor<1x4x3x3xf32> loc("a0,1")
  %a1_1 = "top.Slice"(%x) {offset = [0, 0, 1, 1], steps = [1, 1, 2, 2], ends = [1, 4, 6, 6]} : (tensor<1x4x6x6xf32>) -> tensor<1x4x3x3xf32> loc("a1,1")
  %y = "top.Concat"(%a0_0, %a1_0, %a0_1, %a1_1) {axis = 1} : (tensor<1x4x3x3xf32>, tensor<1x4x3x3xf32>, tensor<1x4x3x3xf32>, tensor<1x4x3x3xf32>) -> tensor<1x16x3x3xf32> loc("y")
  func.return %y : tensor<1x16x3x3xf32>
}

// CHECK:      %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
// CHECK-NEXT: %y = "top.Depth2Space"(%x) {block_h = 2 : i64, block_w = 2 : i64, is_CRD = false, is_inversed = true, swap_cr = true}{{.*}} -> tensor<1x16x3x3xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<1x16x3x3xf32>

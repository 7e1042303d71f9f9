// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// The channels of the image may be the last axis.

func.func @main(%in: tensor<1x4x6x5xf32>) -> tensor<1x4x3x10xf32> {
  %x = "top.Input"(%in) : (tensor<1x4x6x5xf32>) -> tensor<1x4x6x5xf32> loc("x")
  %a = "top.Slice"(%x) {offset = [0, 0, 0, 0], steps = [1, 1, 2, 1], ends = [1, 4, 6, 5]} : (tensor<1x4x6x5xf32>) -> tensor<1x4x3x5xf32> loc("a")
  %b = "top.Slice"(%x) {offset = [0, 0, 1, 0], steps = [1, 1, 2, 1], ends = [1, 4, 6, 5]} : (tensor<1x4x6x5xf32>) -> tensor<1x4x3x5xf32> loc("b")
  %y = "top.Concat"(%a, %b) {axis = 3} : (tensor<1x4x3x5xf32>, tensor<1x4x3x5xf32>) -> tensor<1x4x3x10xf32> loc("y")
  func.return %y : tensor<1x4x3x10xf32>
}

// CHECK:      %y = "top.Depth2Space"(%x) {block_h = 1 : i64, block_w = 2 : i64, is_CRD = false, is_inversed = true, swap_cr = false, in_is_NCHW = false, out_is_NCHW = false}{{.*}} -> tensor<1x4x3x10xf32> loc("y")

// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// The Reshape, Permute and Reshape that merge patches of 2 x 2 tokens become an inverse Depth2Space of an image (n, h, w, c).

func.func @main(%in: tensor<1x36x4xf32>) -> tensor<1x3x3x16xf32> {
  %x = "top.Input"(%in) : (tensor<1x36x4xf32>) -> tensor<1x36x4xf32> loc("x")
  %a = "top.Reshape"(%x) {shape = [1, 3, 2, 3, 2, 4]} : (tensor<1x36x4xf32>) -> tensor<1x3x2x3x2x4xf32> loc("a")
  %b = "top.Permute"(%a) {order = [0, 1, 3, 4, 2, 5]} : (tensor<1x3x2x3x2x4xf32>) -> tensor<1x3x3x2x2x4xf32> loc("b")
  %y = "top.Reshape"(%b) {shape = [1, 3, 3, 16]} : (tensor<1x3x3x2x2x4xf32>) -> tensor<1x3x3x16xf32> loc("y")
  func.return %y : tensor<1x3x3x16xf32>
}

// CHECK:      %x = "top.Input"(%in) : (tensor<1x36x4xf32>) -> tensor<1x36x4xf32> loc("x")
// CHECK-NEXT: %0 = "top.Reshape"(%x) {shape = [1 : i64, 6 : i64, 6 : i64, 4 : i64]} : (tensor<1x36x4xf32>) -> tensor<1x6x6x4xf32> loc("a")
// CHECK-NEXT: %y = "top.Depth2Space"(%0) {block_h = 2 : i64, block_w = 2 : i64, is_CRD = false, is_inversed = true, swap_cr = true, in_is_NCHW = false, out_is_NCHW = false}{{.*}} -> tensor<1x3x3x16xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<1x3x3x16xf32>

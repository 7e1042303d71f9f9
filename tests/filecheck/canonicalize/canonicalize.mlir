// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// Patterns rewrite ops until none applies; of ops that compute the same, one stays; what nothing reads is removed.
// Here NoUseSlicePattern removes both Slices, of the two Sines one stays, and nothing reads the Abs.

func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2x4x6xf32> {
  %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
  %a = "top.Slice"(%x) {offset = [0, 0, 0], steps = [1, 1, 1], ends = [2, 4, 6]} : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("a")
  %b = "top.Slice"(%a) {offset = [0, 0, 0], steps = [1, 1, 1], ends = [2, 4, 6]} : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("b")
  %c = "top.Sin"(%a) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("c")
  %d = "top.Sin"(%b) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("d")
  %e = "top.Abs"(%d) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("e")
  %y = "top.Add"(%c, %d) : (tensor<2x4x6xf32>, tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("y")
  func.return %y : tensor<2x4x6xf32>
}

// CHECK:      %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %c = "top.Sin"(%x) {{.*}} -> tensor<2x4x6xf32> loc("c")
// CHECK-NEXT: %y = "top.Add"(%c, %c) {{.*}} -> tensor<2x4x6xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<2x4x6xf32>

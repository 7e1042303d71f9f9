// RUN: tpusim opt -p 'processor-assign{chip=bm1684x mode=F16},processor-top-optimize' %s | filecheck %s
//
// A Concat of the second and the first part of a tensor becomes a cyclic shift. A Slice that is read by another op stays.

func.func @main(%in: tensor<2x4x6xf32>) -> (tensor<2x4x6xf32>, tensor<2x1x6xf32>) {
  %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
  %p = "top.Slice"(%x) {offset = [0, 1, 0], steps = [1, 1, 1], ends = [2, 4, 6]} : (tensor<2x4x6xf32>) -> tensor<2x3x6xf32> loc("p")
  %q = "top.Slice"(%x) {offset = [0, 0, 0], steps = [1, 1, 1], ends = [2, 1, 6]} : (tensor<2x4x6xf32>) -> tensor<2x1x6xf32> loc("q")
  %y = "top.Concat"(%p, %q) {axis = 1} : (tensor<2x3x6xf32>, tensor<2x1x6xf32>) -> tensor<2x4x6xf32> loc("y")
  %z = "top.Abs"(%q) : (tensor<2x1x6xf32>) -> tensor<2x1x6xf32> loc("z")
  func.return %y, %z : tensor<2x4x6xf32>, tensor<2x1x6xf32>
}

// CHECK:      %0 = "top.None"() {{.*}} -> none
// CHECK-NEXT: %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %q = "top.Slice"(%x, %0, %0, %0)
// CHECK-NEXT: %y = "top.SwapDimInner"(%x) {offset = [0 : i64, 1 : i64, 0 : i64]} : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("y")
// CHECK-NEXT: %z = "top.Abs"(%q)
// CHECK-NEXT: func.return %y, %z

// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// A Slice of a Slice reads the operand of the first one, if only Slices read that one.

func.func @main(%in: tensor<2x4x6xf32>) -> (tensor<2x4x2xf32>, tensor<2x3x3xf32>) {
  %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
  %a = "top.Slice"(%x) {offset = [0, 0, 1], steps = [1, 1, 2], ends = [2, 4, 6]} : (tensor<2x4x6xf32>) -> tensor<2x4x3xf32> loc("a")
  %y1 = "top.Slice"(%a) {offset = [0, 0, 1], steps = [1, 1, 1], ends = [2, 4, 3]} : (tensor<2x4x3xf32>) -> tensor<2x4x2xf32> loc("y1")
  %y2 = "top.Slice"(%a) {offset = [0, 1, 0], steps = [1, 1, 1], ends = [2, 4, 3]} : (tensor<2x4x3xf32>) -> tensor<2x3x3xf32> loc("y2")
  func.return %y1, %y2 : tensor<2x4x2xf32>, tensor<2x3x3xf32>
}

// CHECK:      %0 = "top.None"() {{.*}} -> none
// CHECK-NEXT: %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %y1 = "top.Slice"(%x, %0, %0, %0) {offset = [0 : i64, 0 : i64, 3 : i64], steps = [1 : i64, 1 : i64, 2 : i64], ends = [2 : i64, 4 : i64, 6 : i64]}{{.*}} -> tensor<2x4x2xf32> loc("y1")
// CHECK-NEXT: %y2 = "top.Slice"(%x, %0, %0, %0) {offset = [0 : i64, 1 : i64, 1 : i64], steps = [1 : i64, 1 : i64, 2 : i64], ends = [2 : i64, 4 : i64, 6 : i64]}{{.*}} -> tensor<2x3x3xf32> loc("y2")
// CHECK-NEXT: func.return %y1, %y2 : tensor<2x4x2xf32>, tensor<2x3x3xf32>

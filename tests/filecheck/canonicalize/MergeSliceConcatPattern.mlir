// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// A Concat of adjacent Slices of one tensor becomes one Slice.

func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2x4x5xf32> {
  %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
  %a = "top.Slice"(%x) {offset = [0, 0, 1], steps = [1, 1, 1], ends = [2, 4, 3]} : (tensor<2x4x6xf32>) -> tensor<2x4x2xf32> loc("a")
  %b0 = "top.Slice"(%x) {offset = [0, 0, 3], steps = [1, 1, 1], ends = [2, 4, 6]} : (tensor<2x4x6xf32>) -> tensor<2x4x3xf32> loc("b0")
  %y = "top.Concat"(%a, %b0) {axis = 2} : (tensor<2x4x2xf32>, tensor<2x4x3xf32>) -> tensor<2x4x5xf32> loc("y")
  func.return %y : tensor<2x4x5xf32>
}

// CHECK:      %0 = "top.None"() {{.*}} -> none
// CHECK-NEXT: %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %y = "top.Slice"(%x, %0, %0, %0) {offset = [0 : i64, 0 : i64, 1 : i64], steps = [1 : i64, 1 : i64, 1 : i64], ends = [2 : i64, 4 : i64, 6 : i64]}{{.*}} -> tensor<2x4x5xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<2x4x5xf32>

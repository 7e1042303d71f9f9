// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// A Tile along an axis of length 1 before an Add is removed, because the Add broadcasts.

func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2x4x6xf32> {
  %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
  %a = "top.Slice"(%x) {offset = [0, 0, 0], steps = [1, 1, 1], ends = [2, 1, 6]} : (tensor<2x4x6xf32>) -> tensor<2x1x6xf32> loc("a")
  %b0 = "top.Tile"(%a) {tile = [1, 4, 1]} : (tensor<2x1x6xf32>) -> tensor<2x4x6xf32> loc("b0")
  %y = "top.Add"(%b0, %x) : (tensor<2x4x6xf32>, tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("y")
  func.return %y : tensor<2x4x6xf32>
}

// CHECK:      %0 = "top.None"() {{.*}} -> none
// CHECK-NEXT: %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %a = "top.Slice"(%x, %0, %0, %0) {offset = [0 : i64, 0 : i64, 0 : i64], steps = [1 : i64, 1 : i64, 1 : i64], ends = [2 : i64, 1 : i64, 6 : i64]}{{.*}} -> tensor<2x1x6xf32> loc("a")
// CHECK-NEXT: %y = "top.Add"(%a, %x) {{.*}} -> tensor<2x4x6xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<2x4x6xf32>

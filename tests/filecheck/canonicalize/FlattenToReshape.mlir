// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// A Flatten becomes a Reshape, and so joins the Reshape after it.

func.func @main(%in: tensor<2x3x4x6xf32>) -> (tensor<2x72xf32>, tensor<8x18xf32>) {
  %x = "top.Input"(%in) : (tensor<2x3x4x6xf32>) -> tensor<2x3x4x6xf32> loc("x")
  %y = "top.Flatten"(%x) {start_dim = 1, end_dim = -1} : (tensor<2x3x4x6xf32>) -> tensor<2x72xf32> loc("y")
  %a = "top.Flatten"(%x) {start_dim = -3, end_dim = 2} : (tensor<2x3x4x6xf32>) -> tensor<2x12x6xf32> loc("a")
  %z = "top.Reshape"(%a) {shape = [8, 18]} : (tensor<2x12x6xf32>) -> tensor<8x18xf32> loc("z")
  func.return %y, %z : tensor<2x72xf32>, tensor<8x18xf32>
}

// CHECK:      %x = "top.Input"(%in) : (tensor<2x3x4x6xf32>) -> tensor<2x3x4x6xf32> loc("x")
// CHECK-NEXT: %y = "top.Reshape"(%x) {shape = [2 : i64, 72 : i64]}{{.*}} -> tensor<2x72xf32> loc("y")
// CHECK-NEXT: %z = "top.Reshape"(%x) {shape = [8 : i64, 18 : i64]}{{.*}} -> tensor<8x18xf32> loc("z")
// CHECK-NEXT: func.return %y, %z : tensor<2x72xf32>, tensor<8x18xf32>

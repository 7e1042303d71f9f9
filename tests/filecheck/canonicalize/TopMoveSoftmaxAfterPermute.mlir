// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// The Permutes before and after a Softmax become one before it, and the Softmax runs along the axis
// that its axis became.

func.func @main(%in: tensor<2x4x6x3xf32>) -> tensor<2x6x4x3xf32> {
  %x = "top.Input"(%in) : (tensor<2x4x6x3xf32>) -> tensor<2x4x6x3xf32> loc("x")
  %a = "top.Permute"(%x) {order = [0, 3, 1, 2]} : (tensor<2x4x6x3xf32>) -> tensor<2x3x4x6xf32> loc("a")
  %b0 = "top.Softmax"(%a) {axis = 3} : (tensor<2x3x4x6xf32>) -> tensor<2x3x4x6xf32> loc("b0")
  %y = "top.Permute"(%b0) {order = [0, 3, 2, 1]} : (tensor<2x3x4x6xf32>) -> tensor<2x6x4x3xf32> loc("y")
  func.return %y : tensor<2x6x4x3xf32>
}

// CHECK:      %x = "top.Input"(%in) : (tensor<2x4x6x3xf32>) -> tensor<2x4x6x3xf32> loc("x")
// CHECK-NEXT: %y = "top.Permute"(%x) {order = [0 : i64, 2 : i64, 1 : i64, 3 : i64]}{{.*}} -> tensor<2x6x4x3xf32> loc("a_r_reordered")
// CHECK-NEXT: %y_1 = "top.Softmax"(%y) {axis = 1 : si32}{{.*}} -> tensor<2x6x4x3xf32> loc("y")
// CHECK-NEXT: func.return %y_1 : tensor<2x6x4x3xf32>

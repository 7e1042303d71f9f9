// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// The second of two Permutes in a row takes in the order of the first.

func.func @main(%in: tensor<2x4x6xf32>) -> tensor<4x2x6xf32> {
  %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
  %a = "top.Permute"(%x) {order = [0, 2, 1]} : (tensor<2x4x6xf32>) -> tensor<2x6x4xf32> loc("a")
  %y = "top.Permute"(%a) {order = [2, 0, 1]} : (tensor<2x6x4xf32>) -> tensor<4x2x6xf32> loc("y")
  func.return %y : tensor<4x2x6xf32>
}

// CHECK:      %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %y = "top.Permute"(%x) {order = [1 : i64, 0 : i64, 2 : i64]}{{.*}} -> tensor<4x2x6xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<4x2x6xf32>

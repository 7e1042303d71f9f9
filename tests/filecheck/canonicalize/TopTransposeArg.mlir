// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// An Arg after a Permute reads the operand of the Permute, along the axis that was permuted.

func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2x6xf32> {
  %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
  %a = "top.Permute"(%x) {order = [0, 2, 1]} : (tensor<2x4x6xf32>) -> tensor<2x6x4xf32> loc("a")
  %y = "top.Arg"(%a) {axis = 2, keepdims = false, mode = "ArgMax", select_last_index = false} : (tensor<2x6x4xf32>) -> tensor<2x6xf32> loc("y")
  func.return %y : tensor<2x6xf32>
}

// CHECK:      %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %y, %y_1 = "top.Arg"(%x) {axis = 1 : i64, keepdims = false, mode = "ArgMax", select_last_index = false}{{.*}} -> (tensor<2x6xf32>, none) loc("y")
// CHECK-NEXT: func.return %y : tensor<2x6xf32>

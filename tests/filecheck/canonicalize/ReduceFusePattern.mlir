// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// Two reductions of one kind in a row become one over the axes of both.

func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2xf32> {
  %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
  %a = "top.Reduce"(%x) {axes = [2], mode = "ReduceSum", keepdims = false} : (tensor<2x4x6xf32>) -> tensor<2x4xf32> loc("a")
  %y = "top.Reduce"(%a) {axes = [1], mode = "ReduceSum", keepdims = false} : (tensor<2x4xf32>) -> tensor<2xf32> loc("y")
  func.return %y : tensor<2xf32>
}

// CHECK:      %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %y = "top.Reduce"(%x) {axes = [1 : i64, 2 : i64], mode = "ReduceSum", keepdims = false}{{.*}} -> tensor<2xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<2xf32>

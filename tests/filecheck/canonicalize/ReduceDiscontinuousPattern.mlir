// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// A reduction over two axes with axes of length 1 between them becomes one over all of these axes.

func.func @main(%in: tensor<2x4x1x6xf32>) -> tensor<2x1x1x1xf32> {
  %x = "top.Input"(%in) : (tensor<2x4x1x6xf32>) -> tensor<2x4x1x6xf32> loc("x")
  %y = "top.Reduce"(%x) {axes = [1, 3], mode = "ReduceSum", keepdims = true} : (tensor<2x4x1x6xf32>) -> tensor<2x1x1x1xf32> loc("y")
  func.return %y : tensor<2x1x1x1xf32>
}

// CHECK:      %x = "top.Input"(%in) : (tensor<2x4x1x6xf32>) -> tensor<2x4x1x6xf32> loc("x")
// CHECK-NEXT: %y = "top.Reduce"(%x) {axes = [1 : i64, 2 : i64, 3 : i64], mode = "ReduceSum", keepdims = true}{{.*}} -> tensor<2x1x1x1xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<2x1x1x1xf32>

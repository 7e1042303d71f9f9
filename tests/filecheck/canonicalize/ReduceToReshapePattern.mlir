// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// A reduction over axes of length 1 becomes a Reshape.

func.func @main(%in: tensor<1x4x6xf32>) -> tensor<4x6xf32> {
  %x = "top.Input"(%in) : (tensor<1x4x6xf32>) -> tensor<1x4x6xf32> loc("x")
  %y = "top.Reduce"(%x) {axes = [0], mode = "ReduceMax", keepdims = false} : (tensor<1x4x6xf32>) -> tensor<4x6xf32> loc("y")
  func.return %y : tensor<4x6xf32>
}

// CHECK:      %x = "top.Input"(%in) : (tensor<1x4x6xf32>) -> tensor<1x4x6xf32> loc("x")
// CHECK-NEXT: %y = "top.Reshape"(%x) {shape = [4 : i64, 6 : i64]}{{.*}} -> tensor<4x6xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<4x6xf32>

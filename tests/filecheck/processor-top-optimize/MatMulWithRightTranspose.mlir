// RUN: tpusim opt -p 'processor-assign{chip=bm1684x mode=F32},processor-top-optimize' %s | filecheck %s
//
// A Permute of the last two axes becomes the transposition of the right operand of a MatMul.

func.func @main(%in1: tensor<2x4x6xf32>, %in2: tensor<2x5x6xf32>) -> tensor<2x4x5xf32> {
  %x = "top.Input"(%in1) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
  %z = "top.Input"(%in2) : (tensor<2x5x6xf32>) -> tensor<2x5x6xf32> loc("z")
  %a = "top.Permute"(%z) {order = [0, 2, 1]} : (tensor<2x5x6xf32>) -> tensor<2x6x5xf32> loc("a")
  %none = "top.None"() : () -> none
  %y = "top.MatMul"(%x, %a, %none) {left_transpose = false, right_transpose = false} : (tensor<2x4x6xf32>, tensor<2x6x5xf32>, none) -> tensor<2x4x5xf32> loc("y")
  func.return %y : tensor<2x4x5xf32>
}

// CHECK:      %x = "top.Input"(%in1) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %z = "top.Input"(%in2) : (tensor<2x5x6xf32>) -> tensor<2x5x6xf32> loc("z")
// CHECK-NEXT: %none = "top.None"() {{.*}} -> none
// CHECK-NEXT: %y = "top.MatMul"(%x, %z, %none) {left_transpose = false, right_transpose = true{{.*}} -> tensor<2x4x5xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<2x4x5xf32>

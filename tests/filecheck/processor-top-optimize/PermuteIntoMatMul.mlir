// RUN: tpusim opt -p 'processor-assign{chip=cv183x mode=BF16},processor-top-optimize' %s | filecheck %s
//
// The Permutes of heads before and after a MatMul become its attributes.

func.func @main(%in1: tensor<1x5x2x8xf32>, %in2: tensor<1x8x2x6xf32>) -> tensor<1x5x2x6xf32> {
  %x = "top.Input"(%in1) : (tensor<1x5x2x8xf32>) -> tensor<1x5x2x8xf32> loc("x")
  %z = "top.Input"(%in2) : (tensor<1x8x2x6xf32>) -> tensor<1x8x2x6xf32> loc("z")
  %a = "top.Permute"(%x) {order = [0, 2, 1, 3]} : (tensor<1x5x2x8xf32>) -> tensor<1x2x5x8xf32> loc("a")
  %b0 = "top.Permute"(%z) {order = [0, 2, 1, 3]} : (tensor<1x8x2x6xf32>) -> tensor<1x2x8x6xf32> loc("b0")
  %none = "top.None"() : () -> none
  %c0 = "top.MatMul"(%a, %b0, %none) {left_transpose = false, right_transpose = false, relu_limit = -1.000000e+00 : f64} : (tensor<1x2x5x8xf32>, tensor<1x2x8x6xf32>, none) -> tensor<1x2x5x6xf32> loc("c0")
  %y = "top.Permute"(%c0) {order = [0, 2, 1, 3]} : (tensor<1x2x5x6xf32>) -> tensor<1x5x2x6xf32> loc("y")
  func.return %y : tensor<1x5x2x6xf32>
}

// CHECK:      %x = "top.Input"(%in1) : (tensor<1x5x2x8xf32>) -> tensor<1x5x2x8xf32> loc("x")
// CHECK-NEXT: %z = "top.Input"(%in2) : (tensor<1x8x2x6xf32>) -> tensor<1x8x2x6xf32> loc("z")
// CHECK-NEXT: %none = "top.None"() {{.*}} -> none
// CHECK-NEXT: %c0 = "top.MatMul"(%x, %z, %none) {left_transpose = true, right_transpose = true, {{.*}}, hdim_is_batch = true, output_transpose = true}{{.*}} -> tensor<1x5x2x6xf32> loc("y")
// CHECK-NEXT: func.return %c0 : tensor<1x5x2x6xf32>

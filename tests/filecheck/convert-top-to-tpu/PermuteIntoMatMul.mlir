// RUN: tpusim opt -p 'convert-top-to-tpu{chip=cv183x mode=BF16}' %s | filecheck %s
//
// The Permutes of heads before and after a MatMul become its attributes.

func.func @main(%in1: tensor<1x5x2x8xf32>, %in2: tensor<1x8x2x6xf32>) -> tensor<1x5x2x6xf32> {
  %x = "top.Input"(%in1) : (tensor<1x5x2x8xf32>) -> tensor<1x5x2x8xf32> loc("x")
  %z = "top.Input"(%in2) : (tensor<1x8x2x6xf32>) -> tensor<1x8x2x6xf32> loc("z")
  %a = "top.Permute"(%x) {order = [0, 2, 1, 3]} : (tensor<1x5x2x8xf32>) -> tensor<1x2x5x8xf32> loc("a")
  %b0 = "top.Permute"(%z) {order = [0, 2, 1, 3]} : (tensor<1x8x2x6xf32>) -> tensor<1x2x8x6xf32> loc("b0")
  %none = "top.None"() : () -> none
  %c0 = "top.MatMul"(%a, %b0, %none) : (tensor<1x2x5x8xf32>, tensor<1x2x8x6xf32>, none) -> tensor<1x2x5x6xf32> loc("c0")
  %y = "top.Permute"(%c0) {order = [0, 2, 1, 3]} : (tensor<1x2x5x6xf32>) -> tensor<1x5x2x6xf32> loc("y")
  func.return %y : tensor<1x5x2x6xf32>
}

// CHECK:      %2 = "top.Input"(%0) : (tensor<1x5x2x8xf32>) -> tensor<1x5x2x8xf32> loc("x")
// CHECK-NEXT: %3 = "top.Input"(%1) : (tensor<1x8x2x6xf32>) -> tensor<1x8x2x6xf32> loc("z")
// CHECK-NEXT: %4 = "tpu.Cast"(%2) {{.*}} -> tensor<1x5x2x8xbf16> loc("xy_bf16")
// CHECK-NEXT: %5 = "tpu.Cast"(%3) {{.*}} -> tensor<1x8x2x6xbf16> loc("zy_bf16")
// CHECK-NEXT: %6 = "top.None"() {{.*}} -> none
// CHECK-NEXT: %7 = "tpu.MatMul"(%4, %5, %6) {left_transpose = true, right_transpose = true, {{.*}}, hdim_is_batch = true, output_transpose = true}{{.*}} -> tensor<1x5x2x6xbf16> loc("y")
// CHECK-NEXT: %8 = "tpu.Cast"(%7) {{.*}} -> tensor<1x5x2x6xf32> loc("y_f32")
// CHECK-NEXT: func.return %8 : tensor<1x5x2x6xf32>

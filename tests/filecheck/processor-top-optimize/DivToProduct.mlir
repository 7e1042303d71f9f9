// RUN: tpusim opt -p 'processor-assign{chip=cv183x mode=BF16},processor-top-optimize' %s | filecheck %s
//
// A Div of two tensors becomes a Mul by the Reciprocal of the divisor.

func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2x4x6xf32> {
  %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
  %a = "top.Sin"(%x) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("a")
  %y = "top.Div"(%x, %a) : (tensor<2x4x6xf32>, tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("y")
  func.return %y : tensor<2x4x6xf32>
}

// CHECK:      %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %a = "top.Sin"(%x) {{.*}} -> tensor<2x4x6xf32> loc("a")
// CHECK-NEXT: %0 = "top.Reciprocal"(%a) {const_val = 1.000000e+00 : f64}{{.*}} -> tensor<2x4x6xf32> loc("a_reciprocal")
// CHECK-NEXT: %y = "top.Mul"(%x, %0) {{.*}} -> tensor<2x4x6xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<2x4x6xf32>

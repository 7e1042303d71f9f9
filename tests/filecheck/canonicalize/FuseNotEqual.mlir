// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// A comparison for equality and the Not after it, which is a comparison with 0, become one for inequality.

func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2x4x6xf32> {
  %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
  %a = "top.CompareConst"(%x) {mode = "Equal", const_val = 5.000000e-01 : f64, inversed = false} : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("a")
  %y = "top.CompareConst"(%a) {mode = "Equal", const_val = 0.000000e+00 : f64} : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("y")
  func.return %y : tensor<2x4x6xf32>
}

// CHECK:      %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %y = "top.CompareConst"(%x) {mode = "NotEqual", const_val = 5.000000e-01 : f64, inversed = false}{{.*}} -> tensor<2x4x6xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<2x4x6xf32>

// RUN: tpusim opt -p 'canonicalize{also=mul_too_large}' %s | filecheck %s
//
// On request: a MulConst by 1e10 or more multiplies by 1e4 instead.

func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2x4x6xf32> {
  %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
  %y = "top.MulConst"(%x) {const_val = 1.000000e+12 : f64} : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("y")
  func.return %y : tensor<2x4x6xf32>
}

// CHECK:      %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %y = "top.MulConst"(%x) {const_val = 1.000000e+04 : f64{{.*}} -> tensor<2x4x6xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<2x4x6xf32>

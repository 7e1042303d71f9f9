// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// Two MulConsts in a row become one by the product of the numbers.

func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2x4x6xf32> {
  %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
  %a = "top.MulConst"(%x) {const_val = 3.000000e+00 : f64} : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("a")
  %y = "top.MulConst"(%a) {const_val = 2.000000e+00 : f64} : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("y")
  func.return %y : tensor<2x4x6xf32>
}

// CHECK:      %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %y = "top.MulConst"(%x) {const_val = 6.000000e+00 : f64{{.*}} -> tensor<2x4x6xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<2x4x6xf32>

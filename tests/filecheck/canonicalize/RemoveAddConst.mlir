// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// An AddConst of 0 is removed.

func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2x4x6xf32> {
  %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
  %a = "top.AddConst"(%x) {const_val = 0.000000e+00 : f64} : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("a")
  %y = "top.Sin"(%a) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("y")
  func.return %y : tensor<2x4x6xf32>
}

// CHECK:      %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %y = "top.Sin"(%x) {{.*}} -> tensor<2x4x6xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<2x4x6xf32>

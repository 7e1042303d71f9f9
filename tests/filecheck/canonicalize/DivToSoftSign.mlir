// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// A Div of x by 1 + |x| becomes a Softsign.

func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2x4x6xf32> {
  %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
  %a = "top.Abs"(%x) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("a")
  %b0 = "top.AddConst"(%a) {const_val = 1.000000e+00 : f64} : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("b0")
  %y = "top.Div"(%x, %b0) : (tensor<2x4x6xf32>, tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("y")
  func.return %y : tensor<2x4x6xf32>
}

// CHECK:      %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %y = "top.Softsign"(%x) {{.*}} -> tensor<2x4x6xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<2x4x6xf32>

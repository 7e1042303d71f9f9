// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// The parts of the GELU by the error function become a GELU.

module {
  func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2x4x6xf32> {
    %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
    %a = "top.MulConst"(%x) {const_val = 0.70710655486965801 : f64} : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("a")
    %b0 = "top.Erf"(%a) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("b0")
    %d = "top.AddConst"(%b0) {const_val = 1.000000e+00 : f64} : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("d")
    %e = "top.MulConst"(%x) {const_val = 5.000000e-01 : f64} : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("e")
    %y = "top.Mul"(%d, %e) : (tensor<2x4x6xf32>, tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("y")
    func.return %y : tensor<2x4x6xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %y = "top.GELU"(%x) {approx_mode = "normal"}{{.*}} -> tensor<2x4x6xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<2x4x6xf32>

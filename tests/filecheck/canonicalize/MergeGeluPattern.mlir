// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// Between two Reshapes the parts of the GELU by the hyperbolic tangent become the GELU by the error function.

module {
  func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2x4x6xf32> {
    %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
    %v = "top.Reshape"(%x) {shape = [8, 6]} : (tensor<2x4x6xf32>) -> tensor<8x6xf32> loc("v")
    %a = "top.Pow"(%v) {exponent = 3.000000e+00 : f64} : (tensor<8x6xf32>) -> tensor<8x6xf32> loc("a")
    %b0 = "top.MulConst"(%a) {const_val = 0.044714998453855515 : f64} : (tensor<8x6xf32>) -> tensor<8x6xf32> loc("b0")
    %c0 = "top.Add"(%v, %b0) : (tensor<8x6xf32>, tensor<8x6xf32>) -> tensor<8x6xf32> loc("c0")
    %d = "top.MulConst"(%c0) {const_val = 0.79788458347320557 : f64} : (tensor<8x6xf32>) -> tensor<8x6xf32> loc("d")
    %e = "top.Tanh"(%d) : (tensor<8x6xf32>) -> tensor<8x6xf32> loc("e")
    %f = "top.AddConst"(%e) {const_val = 1.000000e+00 : f64} : (tensor<8x6xf32>) -> tensor<8x6xf32> loc("f")
    %h = "top.MulConst"(%v) {const_val = 5.000000e-01 : f64} : (tensor<8x6xf32>) -> tensor<8x6xf32> loc("h")
    %p = "top.Mul"(%h, %f) : (tensor<8x6xf32>, tensor<8x6xf32>) -> tensor<8x6xf32> loc("p")
    %y = "top.Reshape"(%p) {shape = [2, 4, 6]} : (tensor<8x6xf32>) -> tensor<2x4x6xf32> loc("y")
    func.return %y : tensor<2x4x6xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %y = "top.GELU"(%x) {approx_mode = "normal"}{{.*}} -> tensor<2x4x6xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<2x4x6xf32>

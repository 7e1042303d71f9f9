// RUN: tpusim opt -p 'canonicalize{also=gelu_tanh}' %s | filecheck %s
//
// On request: the parts of the GELU by the hyperbolic tangent become a GELU of that form.
// WEIGHT half = 0.5

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2x4x6xf32> {
    %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
    %a = "top.Pow"(%x) {exponent = 3.000000e+00 : f64} : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("a")
    %b0 = "top.MulConst"(%a) {const_val = 0.044714998453855515 : f64} : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("b0")
    %c0 = "top.Add"(%x, %b0) : (tensor<2x4x6xf32>, tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("c0")
    %d = "top.MulConst"(%c0) {const_val = 0.79788458347320557 : f64} : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("d")
    %e = "top.Tanh"(%d) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("e")
    %f = "top.AddConst"(%e) {const_val = 1.000000e+00 : f64} : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("f")
    %h = "top.Mul"(%x, %f) : (tensor<2x4x6xf32>, tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("h")
    %half = "top.Weight"() : () -> tensor<1x1x1xf32> loc("half")
    %y = "top.Mul"(%h, %half) : (tensor<2x4x6xf32>, tensor<1x1x1xf32>) -> tensor<2x4x6xf32> loc("y")
    func.return %y : tensor<2x4x6xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %y = "top.GELU"(%x) {approx_mode = "tanh"}{{.*}} -> tensor<2x4x6xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<2x4x6xf32>

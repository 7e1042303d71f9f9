// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// The parts of the GELU by the error function become a GELU.
// WEIGHT root = 1.414214
// WEIGHT one = 1
// WEIGHT half = 0.5

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2x4x6xf32> {
    %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
    %root = "top.Weight"() : () -> tensor<f32> loc("root")
    %a = "top.Div"(%x, %root) : (tensor<2x4x6xf32>, tensor<f32>) -> tensor<2x4x6xf32> loc("a")
    %b0 = "top.Erf"(%a) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("b0")
    %one = "top.Weight"() : () -> tensor<f32> loc("one")
    %d = "top.Add"(%b0, %one) : (tensor<2x4x6xf32>, tensor<f32>) -> tensor<2x4x6xf32> loc("d")
    %e = "top.Mul"(%x, %d) : (tensor<2x4x6xf32>, tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("e")
    %half = "top.Weight"() : () -> tensor<1x1x1xf32> loc("half")
    %y = "top.Mul"(%e, %half) : (tensor<2x4x6xf32>, tensor<1x1x1xf32>) -> tensor<2x4x6xf32> loc("y")
    func.return %y : tensor<2x4x6xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %y = "top.GELU"(%x) {approx_mode = "normal"}{{.*}} -> tensor<2x4x6xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<2x4x6xf32>

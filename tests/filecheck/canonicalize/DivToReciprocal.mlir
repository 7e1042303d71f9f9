// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// A Div of a number by a tensor becomes a Reciprocal with this numerator.
// WEIGHT three = 3

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2x4x6xf32> {
    %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
    %three = "top.Weight"() : () -> tensor<f32> loc("three")
    %y = "top.Div"(%three, %x) : (tensor<f32>, tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("y")
    func.return %y : tensor<2x4x6xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %y = "top.Reciprocal"(%x) {const_val = 3.000000e+00 : f64}{{.*}} -> tensor<2x4x6xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<2x4x6xf32>

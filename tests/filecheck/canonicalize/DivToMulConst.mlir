// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// A Div by a number becomes a MulConst by its reciprocal.
// WEIGHT two = 2

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2x4x6xf32> {
    %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
    %two = "top.Weight"() : () -> tensor<f32> loc("two")
    %y = "top.Div"(%x, %two) : (tensor<2x4x6xf32>, tensor<f32>) -> tensor<2x4x6xf32> loc("y")
    func.return %y : tensor<2x4x6xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %y = "top.MulConst"(%x) {const_val = 5.000000e-01 : f64{{.*}} -> tensor<2x4x6xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<2x4x6xf32>

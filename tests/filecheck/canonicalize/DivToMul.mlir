// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// A Div by a constant without zeros becomes a Mul by the reciprocal.
// WEIGHT row = 1 2 3 4 5 6

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2x4x6xf32> {
    %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
    %row = "top.Weight"() : () -> tensor<1x1x6xf32> loc("row")
    %y = "top.Div"(%x, %row) : (tensor<2x4x6xf32>, tensor<1x1x6xf32>) -> tensor<2x4x6xf32> loc("y")
    func.return %y : tensor<2x4x6xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %0 = "top.Weight"() : () -> tensor<1x1x6xf32> loc("row_reciprocal")
// CHECK-NEXT: %y = "top.Mul"(%x, %0) {{.*}} -> tensor<2x4x6xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<2x4x6xf32>

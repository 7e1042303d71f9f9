// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// A Mul by a weight with one value becomes a MulConst.
// WEIGHT three = 3

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2x4x6xf32> {
    %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
    %three = "top.Weight"() : () -> tensor<1x1x1xf32> loc("three")
    %y = "top.Mul"(%three, %x) : (tensor<1x1x1xf32>, tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("y")
    func.return %y : tensor<2x4x6xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %y = "top.MulConst"(%x) {const_val = 3.000000e+00 : f64{{.*}} -> tensor<2x4x6xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<2x4x6xf32>

// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// A Min with a weight of one value becomes a MinConst.
// WEIGHT half = 0.5

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2x4x6xf32> {
    %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
    %half = "top.Weight"() : () -> tensor<f32> loc("half")
    %y = "top.Min"(%half, %x) : (tensor<f32>, tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("y")
    func.return %y : tensor<2x4x6xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %y = "top.MinConst"(%x) {const_val = 5.000000e-01 : f64{{.*}} -> tensor<2x4x6xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<2x4x6xf32>

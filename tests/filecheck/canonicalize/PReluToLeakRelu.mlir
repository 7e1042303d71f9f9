// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// A PRelu with one slope for all channels becomes a LeakyRelu.
// WEIGHT y_slope = 0.3

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2x4x6xf32> {
    %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
    %y_slope = "top.Weight"() : () -> tensor<4xf32> loc("y_slope")
    %y = "top.PRelu"(%x, %y_slope) : (tensor<2x4x6xf32>, tensor<4xf32>) -> tensor<2x4x6xf32> loc("y")
    func.return %y : tensor<2x4x6xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %y = "top.LeakyRelu"(%x) {alpha = 0.30000001192092896 : f64}{{.*}} -> tensor<2x4x6xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<2x4x6xf32>

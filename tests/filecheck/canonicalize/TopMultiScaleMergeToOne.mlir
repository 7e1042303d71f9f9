// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// Two Scales in a row become one.
// WEIGHT statistics = 1 2 3 4
// WEIGHT factors = 1 2 3 4

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> {
    %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
    %statistics = "top.Weight"() : () -> tensor<4xf32> loc("statistics")
    %a = "top.BatchNorm"(%x, %statistics, %statistics, %statistics, %statistics) {epsilon = 1.000000e-05 : f64} : (tensor<1x4x6x6xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<1x4x6x6xf32> loc("a")
    %factors = "top.Weight"() : () -> tensor<1x4x1x1xf32> loc("factors")
    %y = "top.Mul"(%a, %factors) : (tensor<1x4x6x6xf32>, tensor<1x4x1x1xf32>) -> tensor<1x4x6x6xf32> loc("y")
    func.return %y : tensor<1x4x6x6xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
// CHECK-NEXT: %0 = "top.Weight"() : () -> tensor<4xf32> loc("y_scale_1")
// CHECK-NEXT: %1 = "top.Weight"() : () -> tensor<4xf32> loc("y_scale_bias_1")
// CHECK-NEXT: %y = "top.Scale"(%x, %0, %1) {{.*}} -> tensor<1x4x6x6xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<1x4x6x6xf32>

// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// A BatchNorm with constant statistics becomes a Scale.
// WEIGHT statistics = 1 2 3 4

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> {
    %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
    %statistics = "top.Weight"() : () -> tensor<4xf32> loc("statistics")
    %y = "top.BatchNorm"(%x, %statistics, %statistics, %statistics, %statistics) {epsilon = 1.000000e-05 : f64} : (tensor<1x4x6x6xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<1x4x6x6xf32> loc("y")
    func.return %y : tensor<1x4x6x6xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
// CHECK-NEXT: %0 = "top.Weight"() : () -> tensor<4xf32> loc("y_scale")
// CHECK-NEXT: %1 = "top.Weight"() : () -> tensor<4xf32> loc("y_scale_bias")
// CHECK-NEXT: %y = "top.Scale"(%x, %0, %1) {{.*}} -> tensor<1x4x6x6xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<1x4x6x6xf32>

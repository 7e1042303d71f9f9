// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// An InstanceNorm of channels that a Reshape makes of groups becomes a GroupNorm.
// WEIGHT g2 = 1 2
// WEIGHT b2 = 1 2

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> {
    %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
    %a = "top.Reshape"(%x) {shape = [1, 2, 72]} : (tensor<1x4x6x6xf32>) -> tensor<1x2x72xf32> loc("a")
    %g2 = "top.Weight"() : () -> tensor<2xf32> loc("g2")
    %b2 = "top.Weight"() : () -> tensor<2xf32> loc("b2")
    %b0 = "top.InstanceNorm"(%a, %g2, %b2) {eps = 1.000000e-05 : f64} : (tensor<1x2x72xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<1x2x72xf32> loc("b0")
    %y = "top.Reshape"(%b0) {shape = [1, 4, 6, 6]} : (tensor<1x2x72xf32>) -> tensor<1x4x6x6xf32> loc("y")
    func.return %y : tensor<1x4x6x6xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
// CHECK-NEXT: %0 = "top.Weight"() : () -> tensor<4xf32> loc("b0_weight")
// CHECK-NEXT: %1 = "top.Weight"() : () -> tensor<4xf32> loc("b0_bias")
// CHECK-NEXT: %y = "top.GroupNorm"(%x, %0, %1) {num_groups = 2 : i64, eps = 1.000000e-05 : f64, tpusim.framework = "y"}{{.*}} -> tensor<1x4x6x6xf32> loc("b0_r_GroupNorm")
// CHECK-NEXT: func.return %y : tensor<1x4x6x6xf32>

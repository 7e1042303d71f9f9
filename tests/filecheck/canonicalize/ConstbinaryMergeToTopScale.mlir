// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// A Scale takes in the constant that an AddConst before it adds.
// WEIGHT three = 3
// WEIGHT factors = 1 2 3 4

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> {
    %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
    %three = "top.Weight"() : () -> tensor<f32> loc("three")
    %a = "top.Add"(%x, %three) : (tensor<1x4x6x6xf32>, tensor<f32>) -> tensor<1x4x6x6xf32> loc("a")
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

// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// A Scale after a MatMul goes into its weight and bias.
// WEIGHT matrix = 1 2 3
// WEIGHT y_scale = 1 2 3 4 5
// WEIGHT y_scale_bias = 1 2 3 4 5

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<4x6xf32>) -> tensor<4x5xf32> {
    %x = "top.Input"(%in) : (tensor<4x6xf32>) -> tensor<4x6xf32> loc("x")
    %matrix = "top.Weight"() : () -> tensor<6x5xf32> loc("matrix")
    %none = "top.None"() : () -> none
    %a = "top.MatMul"(%x, %matrix, %none) {left_transpose = false, right_transpose = false} : (tensor<4x6xf32>, tensor<6x5xf32>, none) -> tensor<4x5xf32> loc("a")
    %y_scale = "top.Weight"() : () -> tensor<5xf32> loc("y_scale")
    %y_scale_bias = "top.Weight"() : () -> tensor<5xf32> loc("y_scale_bias")
    %y = "top.Scale"(%a, %y_scale, %y_scale_bias) : (tensor<4x5xf32>, tensor<5xf32>, tensor<5xf32>) -> tensor<4x5xf32> loc("y")
    func.return %y : tensor<4x5xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<4x6xf32>) -> tensor<4x6xf32> loc("x")
// CHECK-NEXT: %0 = "top.Weight"() : () -> tensor<6x5xf32> loc("y_right")
// CHECK-NEXT: %1 = "top.Weight"() : () -> tensor<5xf32> loc("y_bias")
// CHECK-NEXT: %a = "top.MatMul"(%x, %0, %1) {left_transpose = false, right_transpose = false{{.*}} -> tensor<4x5xf32> loc("y")
// CHECK-NEXT: func.return %a : tensor<4x5xf32>
